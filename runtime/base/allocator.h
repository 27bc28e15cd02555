#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/device_api.h"
#include "runtime/base/memory_counters.h"
#include "runtime/base/stream.h"

// Memory of one rank on one device. Blocks are cached by size class and never returned to the
// system before release_cached() or destruction, so from the second step on there are no raw
// allocations. The meta allocator does the same arithmetic without memory: a run on meta and a
// real run count the same bytes. One thread uses an allocator: the one its rank context is
// bound to.
//
// [Note: blocks and streams] A block belongs to the stream that was current when it was made, and
// serves requests of that stream alone: what the stream does later comes after what it did before.
// Other streams that use a block are noted; when it is given back, an event is recorded on each of
// them, and the block's stream waits for these before its next user. The host waits for nothing,
// so which block a request gets never depends on timing. Pinned blocks belong to the host, which
// does wait: for the copies of the block that was given back longest ago.
namespace fsdptrain {

class Allocator;

// Where blocks come from that are not of the device's own calls: memory of a library, which is
// asked for one by one and never cached. Used by the allocator's thread.
class BlockSource {
 public:
  BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;
  virtual ~BlockSource() = default;

  // At least `nbytes`; null if there is no more.
  virtual std::byte* allocate(std::size_t nbytes) = 0;
  // Nothing uses the block once these events have passed: one on each stream that used it. It is
  // not called where the device has failed, and nobody can tell.
  virtual void give_back(std::byte* data, std::vector<Event> uses) noexcept = 0;
};

// A block in use; its destruction returns it to the allocator's cache, or to its source.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { reset(); }

  void reset() noexcept;
  explicit operator bool() const { return allocator_ != nullptr; }
  // Null on the meta device.
  std::byte* data() const { return data_; }

  // What is launched on the allocator's current stream, or on `stream`, uses the block.
  inline void note_use();
  void note_use(const Stream& stream);
  // What an OutOfMemoryError calls it, if it is among the largest.
  void set_label(std::string_view label);

 private:
  friend class Allocator;
  void add_user(const Stream& stream);

  std::shared_ptr<Allocator> allocator_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
  MemoryCategory category_ = MemoryCategory::Activation;
  // Null for what the allocator caches.
  std::shared_ptr<BlockSource> source_;
  // The stream it belongs to, and others that used it.
  Stream stream_;
  std::vector<Stream> users_;
  // Its place in the allocator's list of holders.
  std::size_t holder_ = 0;
};

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // Requests come from what is `*current` at the time, for null from the host's own order.
  static std::shared_ptr<Allocator> create(std::shared_ptr<DeviceApi> api,
                                           MemoryKind kind = MemoryKind::Device,
                                           std::shared_ptr<const Stream> current = nullptr);

  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator();

  // At least `nbytes`, not initialised, also for 0, for use by the current stream. If the device
  // has no more, even after the cached blocks went back to it, OutOfMemoryError with size,
  // category, stream and the largest holders; the allocator can be used on.
  Allocation allocate(std::size_t nbytes, MemoryCategory category);
  // The same from another source: counted, labelled and followed through its streams as any other.
  Allocation allocate_from(std::shared_ptr<BlockSource> source, std::size_t nbytes,
                           MemoryCategory category);

  const MemoryCounters& counters() const { return counters_; }
  void reset_peaks() { counters_.reset_peaks(); }
  // Gives cached blocks back to the system, once the streams have passed them.
  void release_cached();

 private:
  friend class Allocation;

  // Given back; used by other streams until these events have passed.
  struct Block {
    std::byte* data = nullptr;
    std::vector<Event> uses;
  };
  struct Holder {
    std::size_t nbytes = 0;
    MemoryCategory category = MemoryCategory::Activation;
    std::string label = {};
  };

  Allocator(std::shared_ptr<DeviceApi> api, MemoryKind kind, std::shared_ptr<const Stream> current);
  Allocation hand_out(std::byte* data, std::size_t nbytes, MemoryCategory category);
  std::byte* take_block(std::size_t block_bytes, MemoryCategory category);
  // Makes the block's next user come after its last ones.
  void wait_for_uses(Block& block);
  // From the source; null: from the device.
  std::byte* raw_block(BlockSource* source, std::size_t block_bytes, MemoryCategory category);
  [[noreturn]] void fail_out_of_memory(std::size_t block_bytes, MemoryCategory category) const;
  std::string largest_holders() const;
  void give_back(Allocation& allocation) noexcept;
  std::deque<Block>& cached(const Stream& stream, std::size_t block_bytes);
  // One for streams of that device, from those that have served.
  Event take_event(const Stream& stream);
  std::vector<Event> record_uses(const std::vector<Stream>& users);
  std::size_t add_holder(std::size_t nbytes, MemoryCategory category);

  std::shared_ptr<DeviceApi> api_;
  MemoryKind kind_;
  // Who owns it changes it.
  std::shared_ptr<const Stream> current_;
  MemoryCounters counters_;
  // The streams that blocks belong to, in the order of their first request: what is done for each
  // of them does not depend on addresses.
  std::vector<Stream> owners_;
  // By the number of the stream among these and by size class.
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Block>> cache_;
  std::vector<Event> events_;
  std::vector<Holder> holders_;
  std::vector<std::size_t> free_holders_;
};

void Allocation::note_use() {
  if (allocator_ && !(*allocator_->current_ == stream_)) [[unlikely]] {
    add_user(*allocator_->current_);
  }
}

}  // namespace fsdptrain
