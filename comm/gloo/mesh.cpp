#include "comm/gloo/mesh.h"

#include <array>
#include <csignal>
#include <ctime>
#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "comm/signals.h"

namespace fsdptrain::comm {
namespace {

// Gloo closes all connections when a wait of its own ends late: here none does.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
// Gloo multiplies the time for a connection by it.
constexpr int kConnectFactor = 5;

class RendezvousStore final : public ::gloo::rendezvous::Store {
 public:
  RendezvousStore(const Rendezvous& rendezvous, const Mesh::Options& options)
      : rendezvous_(rendezvous), options_(options), deadline_(monotonic_clock(), options.timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    rendezvous_.set(full(key), std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    try {
      const std::string value = rendezvous_.get(full(key), deadline_.left());
      return {value.begin(), value.end()};
    } catch (TimeoutError& error) {
      error.add_context(fmt::format("gloo '{}': rank {} waits for rank {}, which has not come",
                                    options_.name, options_.rank, rank_of(key)));
      throw;
    }
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      get(key);
    }
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  // The keys of gloo end with the rank whose they are.
  static std::string rank_of(const std::string& key) {
    return key.substr(key.find_last_not_of("0123456789") + 1);
  }
  std::string full(const std::string& key) const {
    return fmt::format("rank/{}/gloo/{}/{}", rank_of(key), options_.name, key);
  }

  const Rendezvous& rendezvous_;
  const Mesh::Options& options_;
  Deadline deadline_;
};

}  // namespace

std::shared_ptr<gloo::transport::Device> make_device(const NetworkAddress& address) {
  check<ConfigError>(address.host.empty() != address.interface.empty(),
                     "gloo: give the address or the interface that ranks use, not {}",
                     address.host.empty() ? "neither" : "both");
  constexpr std::array<std::string_view, 4> kAll{"0.0.0.0", "::", "0", "*"};
  for (const std::string_view all : kAll) {
    check<ConfigError>(address.host != all,
                       "gloo: '{}' stands for all interfaces; name the one that ranks use", all);
  }
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address.host;
  attributes.iface = address.interface;
  try {
    return without_signals([&] { return ::gloo::transport::tcp::CreateDevice(attributes); });
  } catch (const std::exception& error) {
    fail<ConfigError>("gloo: '{}' is no address or interface of this host: {}",
                      address.host.empty() ? address.interface : address.host, error.what());
  }
}

Mesh::Mesh(std::shared_ptr<gloo::transport::Device> device, const Rendezvous& rendezvous,
           const Options& options)
    : rank_(options.rank), size_(options.size) {
  if (size_ == 1) {
    return;
  }
  const auto context = std::make_shared<::gloo::rendezvous::Context>(rank_, size_);
  context->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout) /
                          kConnectFactor +
                      std::chrono::milliseconds(1));
  RendezvousStore store(rendezvous, options);
  try {
    context->connectFullMesh(store, device);
  } catch (const ::gloo::Exception& error) {
    fail<PeerError>("gloo '{}': rank {} could not connect to all ranks: {}", options.name, rank_,
                    error.what());
  }
  context_ = context;
}

Mesh::~Mesh() {
  close();
}

void Mesh::close() {
  if (context_ && !std::exchange(is_closed_, true)) {
    context_->closeConnections();
  }
}

Region::Region(Mesh& mesh, std::span<std::byte> bytes)
    : buffer_(mesh.context()->createUnboundBuffer(bytes.data(), bytes.size())) {}

Region::Region(Mesh& mesh, std::span<const std::byte> bytes)
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): gloo has one type for both ways.
    : Region(mesh, std::span(const_cast<std::byte*>(bytes.data()), bytes.size())) {}

Region::~Region() = default;

bool Region::send(int peer, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  const PipeSignalGuard guard;
  try {
    buffer_->send(peer, slot, offset, nbytes);
    return true;
  } catch (const ::gloo::Exception&) {
    return false;
  }
}

bool Region::receive(int peer, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  // It tells the peer that it is ready.
  const PipeSignalGuard guard;
  try {
    buffer_->recv(peer, slot, offset, nbytes);
    return true;
  } catch (const ::gloo::Exception&) {
    return false;
  }
}

bool Region::wait_received() {
  try {
    return buffer_->waitRecv(nullptr, kForever);
  } catch (const ::gloo::Exception&) {
    return false;
  }
}

bool Region::wait_sent() {
  try {
    return buffer_->waitSend(nullptr, kForever);
  } catch (const ::gloo::Exception&) {
    return false;
  }
}

void Region::stop_waiting() {
  buffer_->abortWaitRecv();
}

}  // namespace fsdptrain::comm
