#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/clock.h"
#include "comm/gloo/rendezvous.h"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace fsdptrain::comm {

// The one address of this host at which a rank listens and connects: exactly one of the two.
struct NetworkAddress {
  // "10.0.0.7", or a name that resolves to an address of this host.
  std::string host;
  // "eth0"
  std::string interface;
};

// Where gloo's own thread moves bytes. ConfigError where the address is none of this host, is not
// one, or stands for all interfaces.
std::shared_ptr<gloo::transport::Device> make_device(const NetworkAddress& address);

// TCP connections between all ranks of a world, each with numbered slots: what is sent to a slot
// meets what was posted to be received there, in order. It must outlive its regions, and be closed
// before what they lie over is freed.
class Mesh {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    // Tells meshes of one rendezvous apart.
    std::string name;
    Nanoseconds timeout{};
  };

  // Blocks until all ranks are connected. TimeoutError naming a rank that did not come, PeerError
  // for one that came and is gone.
  Mesh(std::shared_ptr<gloo::transport::Device> device, const Rendezvous& rendezvous,
       const Options& options);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // For gloo's own operations; null in a world of one rank.
  const std::shared_ptr<gloo::Context>& context() const { return context_; }
  // Ends all connections at once; afterwards no region is read or written.
  void close();

 private:
  int rank_;
  int size_;
  // Null in a world of one rank.
  std::shared_ptr<gloo::Context> context_;
  bool is_closed_ = false;
};

// Bytes that are sent from and received into, by any number of transfers at once. Transfers are
// started and waited for from any thread.
class Region {
 public:
  Region(Mesh& mesh, std::span<std::byte> bytes);
  // Bytes that are only sent.
  Region(Mesh& mesh, std::span<const std::byte> bytes);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  // Neither blocks. False if the connection is gone.
  bool send(int peer, std::uint64_t slot, std::size_t offset, std::size_t nbytes);
  bool receive(int peer, std::uint64_t slot, std::size_t offset, std::size_t nbytes);
  // Each waits for one transfer more; false after stop_waiting(), or when the connection of one
  // that is under way is gone and no other has ended.
  bool wait_received();
  bool wait_sent();
  // Ends a wait_received(), or the next one.
  void stop_waiting();

 private:
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace fsdptrain::comm
