#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/gloo/mesh.h"
#include "comm/gloo/message.h"

namespace fsdptrain::comm {

// Messages to and from one peer, in order. A thread of its own takes them from the network as soon
// as they come, so that a rank answers its peers while it computes.
class Wire {
 public:
  struct Handlers {
    // Both on the thread of the wire.
    std::function<void(const Message&)> received;
    // The connection is gone; nothing follows.
    std::function<void()> closed;
  };

  Wire(Mesh& mesh, int peer, Handlers handlers);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire();

  void start();
  // Ends the thread; nothing is received any more. Not from a handler.
  void stop();
  // From any thread, also before start(). Returns when the message is on its way; it is lost if the
  // connection is gone.
  void send(const Message& message);

 private:
  void run();

  int peer_;
  Handlers handlers_;
  std::vector<Message> inbox_;
  std::vector<Message> outbox_;
  Region incoming_;
  Region outgoing_;
  // Receives that are posted.
  std::size_t num_posted_ = 0;
  // Guards what follows.
  std::mutex mutex_;
  std::uint64_t num_sent_ = 0;
  std::uint64_t num_gone_out_ = 0;
  std::thread thread_;
};

}  // namespace fsdptrain::comm
