#include "runtime/base/allocator.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain {

Allocation::Allocation(Allocation&& other) noexcept
    : allocator_(std::move(other.allocator_)),
      data_(std::exchange(other.data_, nullptr)),
      nbytes_(other.nbytes_),
      category_(other.category_),
      source_(std::move(other.source_)),
      stream_(std::move(other.stream_)),
      users_(std::move(other.users_)),
      holder_(other.holder_) {}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  if (this != &other) {
    reset();
    allocator_ = std::move(other.allocator_);
    data_ = std::exchange(other.data_, nullptr);
    nbytes_ = other.nbytes_;
    category_ = other.category_;
    source_ = std::move(other.source_);
    stream_ = std::move(other.stream_);
    users_ = std::move(other.users_);
    holder_ = other.holder_;
  }
  return *this;
}

void Allocation::reset() noexcept {
  if (allocator_) {
    allocator_->give_back(*this);
    allocator_.reset();
    data_ = nullptr;
    source_.reset();
    stream_ = {};
    users_.clear();
  }
}

void Allocation::note_use(const Stream& stream) {
  if (allocator_ && !(stream == stream_)) {
    add_user(stream);
  }
}

void Allocation::add_user(const Stream& stream) {
  if (std::ranges::find(users_, stream) == users_.end()) {
    users_.push_back(stream);
  }
}

void Allocation::set_label(std::string_view label) {
  if (allocator_) {
    allocator_->holders_[holder_].label = label;
  }
}

std::shared_ptr<Allocator> Allocator::create(std::shared_ptr<DeviceApi> api, MemoryKind kind,
                                             std::shared_ptr<const Stream> current) {
  if (!current) {
    current = std::make_shared<const Stream>();
  }
  return std::shared_ptr<Allocator>(new Allocator(std::move(api), kind, std::move(current)));
}

Allocator::Allocator(std::shared_ptr<DeviceApi> api, MemoryKind kind,
                     std::shared_ptr<const Stream> current)
    : api_(std::move(api)), kind_(kind), current_(std::move(current)) {}

Allocator::~Allocator() {
  try {
    release_cached();
  } catch (const Error&) {
    // The device has failed, and what it holds went with it.
  }
}

Allocation Allocator::allocate(std::size_t nbytes, MemoryCategory category) {
  return hand_out(take_block(size_class(nbytes), category), nbytes, category);
}

Allocation Allocator::allocate_from(std::shared_ptr<BlockSource> source, std::size_t nbytes,
                                    MemoryCategory category) {
  std::byte* const data = raw_block(source.get(), size_class(nbytes), category);
  Allocation allocation = hand_out(data, nbytes, category);
  allocation.source_ = std::move(source);
  return allocation;
}

Allocation Allocator::hand_out(std::byte* data, std::size_t nbytes, MemoryCategory category) {
  const std::size_t block_bytes = size_class(nbytes);
  Allocation allocation;
  allocation.data_ = data;
  allocation.allocator_ = shared_from_this();
  allocation.nbytes_ = nbytes;
  allocation.category_ = category;
  allocation.stream_ = *current_;
  allocation.holder_ = add_holder(block_bytes, category);
  if (allocation.data_ != nullptr) {
    api_->mark_block(allocation.data_, nbytes, block_bytes, current_->handle());
  }
  counters_.add(static_cast<std::int64_t>(block_bytes), category);
  return allocation;
}

std::byte* Allocator::take_block(std::size_t block_bytes, MemoryCategory category) {
  std::deque<Block>& blocks = cached(*current_, block_bytes);
  if (blocks.empty()) {
    return raw_block(nullptr, block_bytes, category);
  }
  // What the device used last is in its caches; what the host has to wait for is to be long done.
  const bool newest = kind_ == MemoryKind::Device;
  Block& block = newest ? blocks.back() : blocks.front();
  wait_for_uses(block);
  std::byte* const data = block.data;
  newest ? blocks.pop_back() : blocks.pop_front();
  return data;
}

std::deque<Allocator::Block>& Allocator::cached(const Stream& stream, std::size_t block_bytes) {
  const auto owner = std::ranges::find(owners_, stream);
  const auto number = static_cast<std::size_t>(owner - owners_.begin());
  if (owner == owners_.end()) {
    owners_.push_back(stream);
  }
  return cache_[{number, block_bytes}];
}

void Allocator::wait_for_uses(Block& block) {
  for (Event& use : block.uses) {
    if (kind_ == MemoryKind::Pinned) {
      use.synchronize();
    } else {
      current_->wait(use);
    }
  }
  std::ranges::move(block.uses, std::back_inserter(events_));
  block.uses.clear();
}

std::byte* Allocator::raw_block(BlockSource* source, std::size_t block_bytes,
                                MemoryCategory category) {
  const auto take = [&] {
    return source != nullptr ? source->allocate(block_bytes) : api_->allocate(block_bytes, kind_);
  };
  std::byte* block = nullptr;
  if (api_->device().type != DeviceType::Meta) {
    block = take();
    if (block == nullptr) {
      release_cached();
      block = take();
    }
    if (block == nullptr) {
      fail_out_of_memory(block_bytes, category);
    }
  }
  ++counters_.raw_allocations;
  counters_.raw_bytes += static_cast<std::int64_t>(block_bytes);
  return block;
}

void Allocator::fail_out_of_memory(std::size_t block_bytes, MemoryCategory category) const {
  fail<OutOfMemoryError>(
      "allocate: there are no {} bytes more of {}{} for {} on stream {}: {} are in use; the "
      "largest of them: {}",
      block_bytes, kind_ == MemoryKind::Pinned ? "pinned memory for " : "", api_->device(),
      name_of(category), current_->name(), counters_.live_total, largest_holders());
}

std::string Allocator::largest_holders() const {
  constexpr std::size_t kShown = 5;
  std::vector<Holder> holders;
  std::ranges::copy_if(holders_, std::back_inserter(holders),
                       [](const Holder& holder) { return holder.nbytes != 0; });
  const std::size_t shown = std::min(kShown, holders.size());
  std::ranges::partial_sort(holders, holders.begin() + static_cast<std::ptrdiff_t>(shown),
                            std::ranges::greater{}, &Holder::nbytes);
  std::string text;
  for (const Holder& holder : std::span(holders).first(shown)) {
    text += fmt::format("{}{} {}{}{}", text.empty() ? "" : ", ", holder.nbytes,
                        name_of(holder.category), holder.label.empty() ? "" : " of ", holder.label);
  }
  return text.empty() ? "none" : text;
}

void Allocator::give_back(Allocation& allocation) noexcept {
  const std::size_t block_bytes = size_class(allocation.nbytes_);
  counters_.add(-static_cast<std::int64_t>(block_bytes), allocation.category_);
  holders_[allocation.holder_] = {};
  try {
    free_holders_.push_back(allocation.holder_);
    if (allocation.source_) {
      allocation.add_user(allocation.stream_);
    }
    std::vector<Event> uses = record_uses(allocation.users_);
    if (allocation.source_) {
      counters_.raw_bytes -= static_cast<std::int64_t>(block_bytes);
      allocation.source_->give_back(allocation.data_, std::move(uses));
      return;
    }
    if (allocation.data_ != nullptr && uses.empty()) {
      api_->mark_block(allocation.data_, 0, block_bytes, allocation.stream_.handle());
    }
    cached(allocation.stream_, block_bytes).push_back({allocation.data_, std::move(uses)});
  } catch (const std::exception&) {
    // The device has failed, or there is no memory for the cache: nobody can tell when the block
    // may be used again, so nobody uses it.
  }
}

std::vector<Event> Allocator::record_uses(const std::vector<Stream>& users) {
  std::vector<Event> uses;
  for (const Stream& user : users) {
    uses.push_back(take_event(user));
    uses.back().record(user);
  }
  return uses;
}

Event Allocator::take_event(const Stream& stream) {
  const auto found = std::ranges::find(events_, stream.device(), &Event::device);
  if (found == events_.end()) {
    return Event(stream.api());
  }
  Event event = std::move(*found);
  std::swap(*found, events_.back());
  events_.pop_back();
  return event;
}

std::size_t Allocator::add_holder(std::size_t nbytes, MemoryCategory category) {
  if (free_holders_.empty()) {
    free_holders_.push_back(holders_.size());
    holders_.emplace_back();
  }
  const std::size_t holder = free_holders_.back();
  free_holders_.pop_back();
  holders_[holder].nbytes = nbytes;
  holders_[holder].category = category;
  return holder;
}

void Allocator::release_cached() {
  for (auto& [key, blocks] : cache_) {
    const auto [owner, block_bytes] = key;
    // Pinned blocks belong to the host, which is done with them.
    if (!blocks.empty() && kind_ == MemoryKind::Device) {
      owners_[owner].synchronize();
    }
    while (!blocks.empty()) {
      Block& block = blocks.back();
      for (const Event& use : block.uses) {
        use.synchronize();
      }
      if (block.data != nullptr) {
        api_->free(block.data, block_bytes, kind_);
      }
      counters_.raw_bytes -= static_cast<std::int64_t>(block_bytes);
      blocks.pop_back();
    }
  }
  cache_.clear();
  owners_.clear();
}

}  // namespace fsdptrain
