#include "comm/collective/exchange.h"

#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "kernels/combine.h"
#include "kernels/copy_bytes.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {
namespace {

// What is combined or copied at once: peers that wait for staged bytes are served in between.
constexpr std::size_t kStepBytes = std::size_t{1} << 20;
// From here on what was copied is no longer in the caches when somebody reads it.
constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

kernels::Caching caching_of(std::size_t nbytes) {
  return nbytes >= kStreamedBytes ? kernels::Caching::Stream : kernels::Caching::Normal;
}

kernels::CombineOptions combine_options(const Reduction& reduction, int size) {
  switch (reduction.op) {
    case ReduceOp::Sum:
      return {};
    case ReduceOp::Avg:
      return {.scale = 1.0 / size};
    case ReduceOp::PremulSum:
      return {.factor = reduction.factor};
    case ReduceOp::Min:
      return {.op = kernels::CombineOp::Min};
    case ReduceOp::Max:
      return {.op = kernels::CombineOp::Max};
  }
  return {};
}

}  // namespace

Exchange::Exchange(Link& link, Call call, std::vector<Meeting> meetings, Purpose purpose)
    : link_(link),
      call_(std::move(call)),
      meetings_(std::move(meetings)),
      phases_(plan_transfer(call_.operation, call_.members->member())) {
  announced_ = phases_.front();
  if (purpose == Purpose::Compare) {
    call_.operation = barrier(call_.operation.tag);
    phases_ = plan_transfer(call_.operation, call_.members->member());
  }
  const std::vector<int>& ranks = call_.members->ranks;
  for (const Meeting& meeting : meetings_) {
    const auto found = std::ranges::find(ranks, meeting.peer);
    peers_.push_back({.meeting = meeting, .index = static_cast<int>(found - ranks.begin())});
  }
}

void Exchange::post() {
  for (const Peer& peer : peers_) {
    link_.post(peer.meeting, frame_to(peer));
  }
  begin_phase(0);
}

Frame Exchange::frame_to(const Peer& peer) const {
  const auto index = static_cast<std::size_t>(peer.index);
  Frame frame = call_.frame;
  frame.pair_sequence = peer.meeting.sequence;
  frame.num_outgoing = announced_.exports[index].numel;
  frame.num_incoming = announced_.imports[index].numel;
  return frame;
}

bool Exchange::advance() {
  if (is_done_) {
    return false;
  }
  waits_for_ = -1;
  bool moved = verify_frames();
  moved = read_phase() || moved;
  if (is_phase_read()) {
    moved = end_phase() || moved;
  }
  return moved;
}

void Exchange::check_bytes() const {
  if (is_done_) {
    return;
  }
  for (const Tensor* tensor : {&call_.operation.input, &call_.operation.output}) {
    if (tensor->defined()) {
      // Fails, and names the tensor, where they were released since the call.
      tensor->bytes();
    }
  }
}

bool Exchange::verify_frames() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (!peer.is_verified) {
      moved = verify(peer) || moved;
    }
  }
  return moved;
}

bool Exchange::verify(Peer& peer) {
  const std::optional<Frame> theirs = link_.frame(peer.meeting);
  if (!theirs) {
    waits_for_ = peer.meeting.peer;
    return false;
  }
  const auto differs = difference({link_.rank(), frame_to(peer)}, {peer.meeting.peer, *theirs});
  check<MismatchError>(!differs, "{}", differs.value_or(""));
  peer.is_verified = true;
  return true;
}

void Exchange::begin_phase(std::size_t index) {
  phase_ = index;
  combined_ = 0;
  const Phase& phase = phases_[phase_];
  for (Peer& peer : peers_) {
    peer.position = 0;
    peer.is_read = phase.imports[static_cast<std::size_t>(peer.index)].empty();
  }
  offer_phase();
  if (!phase.reduces) {
    copy_own();
  }
}

void Exchange::offer_phase() {
  const Phase& phase = phases_[phase_];
  std::vector<Meeting> readers;
  std::vector<Range> ranges;
  for (const Peer& peer : peers_) {
    const Range range = phase.exports[static_cast<std::size_t>(peer.index)];
    if (!range.empty()) {
      readers.push_back(peer.meeting);
      ranges.push_back(range);
    }
  }
  if (readers.empty()) {
    return;
  }
  const Tensor& source = phase.exports_output ? call_.operation.output : call_.operation.input;
  const std::span<const std::byte> bytes = source.bytes();
  const auto offer = [&](std::span<const Meeting> to, const Range& range) {
    link_.offer(to, static_cast<int>(phase_),
                bytes.subspan(static_cast<std::size_t>(range.begin) * size_of(source.dtype()),
                              nbytes_of(range)));
  };
  // What all of them read is offered once.
  if (std::ranges::all_of(ranges, [&](const Range& range) { return range == ranges.front(); })) {
    offer(readers, ranges.front());
    return;
  }
  for (std::size_t i = 0; i < readers.size(); ++i) {
    offer(std::span(readers).subspan(i, 1), ranges[i]);
  }
}

void Exchange::copy_own() {
  const Phase& phase = phases_[phase_];
  if (phase.own.empty()) {
    return;
  }
  const std::size_t element = size_of(call_.operation.output.dtype());
  const std::byte* from =
      call_.operation.input.bytes().data() + static_cast<std::size_t>(phase.own.begin) * element;
  std::byte* to = call_.operation.output.mutable_bytes().data() +
                  static_cast<std::size_t>(phase.own_target) * element;
  if (from != to) {
    const std::size_t nbytes = nbytes_of(phase.own);
    kernels::copy_bytes(call_.operation.output.launch(), to, from,
                        static_cast<std::int64_t>(nbytes), caching_of(nbytes));
  }
}

bool Exchange::read_phase() {
  if (phases_[phase_].reduces) {
    return combine_parts();
  }
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.is_verified && !peer.is_read) {
      moved = copy_from(peer) || moved;
    }
  }
  return moved;
}

bool Exchange::copy_from(Peer& peer) {
  const Range range = phases_[phase_].imports[static_cast<std::size_t>(peer.index)];
  const std::size_t nbytes = nbytes_of(range);
  const std::span<const std::byte> from = next_bytes(peer);
  if (from.empty()) {
    waits_for_ = peer.meeting.peer;
    return false;
  }
  std::byte* to = call_.operation.output.mutable_bytes().data() +
                  static_cast<std::size_t>(range.begin) * size_of(call_.operation.output.dtype());
  kernels::copy_bytes(call_.operation.output.launch(), to + peer.position, from.data(),
                      static_cast<std::int64_t>(from.size()), caching_of(nbytes));
  peer.position += from.size();
  link_.consume(peer.meeting, static_cast<int>(phase_), peer.position);
  peer.is_read = peer.position == nbytes;
  return true;
}

// All parts of some elements are combined at once, in the order of the ranks.
bool Exchange::combine_parts() {
  const Phase& phase = phases_[phase_];
  const std::size_t element = size_of(call_.operation.output.dtype());
  if (combined_ == phase.own.numel) {
    return false;
  }
  const std::size_t position = static_cast<std::size_t>(combined_) * element;
  std::size_t nbytes = std::min(nbytes_of(phase.own) - position, kStepBytes);
  std::vector<const void*> parts(call_.members->ranks.size());
  parts[static_cast<std::size_t>(call_.members->rank)] =
      call_.operation.input.bytes().data() + static_cast<std::size_t>(phase.own.begin) * element +
      position;
  for (Peer& peer : peers_) {
    if (!peer.is_verified) {
      return false;
    }
    const std::span<const std::byte> from = next_bytes(peer);
    // Parts of elements never come alone: slots hold whole ones.
    if (from.empty()) {
      waits_for_ = peer.meeting.peer;
      return false;
    }
    nbytes = std::min(nbytes, from.size());
    parts[static_cast<std::size_t>(peer.index)] = from.data();
  }
  const auto numel = static_cast<std::int64_t>(nbytes / element);
  std::byte* to = call_.operation.output.mutable_bytes().data() +
                  static_cast<std::size_t>(phase.own_target) * element + position;
  kernels::combine(call_.operation.output.launch(),
                   {.data = to, .dtype = call_.operation.output.dtype()},
                   {.data = parts, .dtype = call_.operation.output.dtype(), .numel = numel},
                   combine_options(call_.operation.reduction, call_.members->size()));
  combined_ += numel;
  for (Peer& peer : peers_) {
    link_.consume(peer.meeting, static_cast<int>(phase_), position + nbytes);
    peer.is_read = combined_ == phase.own.numel;
  }
  return true;
}

bool Exchange::is_phase_read() const {
  const Phase& phase = phases_[phase_];
  return (!phase.reduces || combined_ == phase.own.numel) &&
         std::ranges::all_of(peers_,
                             [](const Peer& peer) { return peer.is_verified && peer.is_read; });
}

bool Exchange::end_phase() {
  if (!is_read_ && phase_ + 1 < phases_.size()) {
    begin_phase(phase_ + 1);
    return true;
  }
  if (!is_read_) {
    for (const Peer& peer : peers_) {
      link_.finish(peer.meeting);
    }
    is_read_ = true;
  }
  // Until then a peer may still read what this rank offered.
  for (const Peer& peer : peers_) {
    if (!link_.finished(peer.meeting)) {
      waits_for_ = peer.meeting.peer;
      return false;
    }
  }
  is_done_ = true;
  return true;
}

std::vector<int> Exchange::unfinished() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    if (!is_read_ || !link_.finished(peer.meeting)) {
      ranks.push_back(peer.meeting.peer);
    }
  }
  return ranks;
}

bool Exchange::is_unfinished(int rank) const {
  const std::vector<int> ranks = unfinished();
  return std::ranges::find(ranks, rank) != ranks.end();
}

std::vector<int> Exchange::missing() const {
  const auto peers_that = [this](auto condition) {
    std::vector<int> ranks;
    for (const Peer& peer : peers_) {
      if (condition(peer)) {
        ranks.push_back(peer.meeting.peer);
      }
    }
    return ranks;
  };
  // Nobody reads before all have said what they do, and nobody combines before all parts are there.
  std::vector<int> ranks = peers_that([](const Peer& peer) { return !peer.is_verified; });
  if (ranks.empty() && !is_read_) {
    ranks =
        peers_that([this](const Peer& peer) { return !peer.is_read && next_bytes(peer).empty(); });
  }
  return ranks.empty()
             ? peers_that([this](const Peer& peer) { return !link_.finished(peer.meeting); })
             : ranks;
}

std::span<const std::byte> Exchange::next_bytes(const Peer& peer) const {
  const Phase& phase = phases_[phase_];
  const std::size_t element = size_of(call_.operation.output.dtype());
  const std::size_t position =
      phase.reduces ? static_cast<std::size_t>(combined_) * element : peer.position;
  const std::size_t nbytes = nbytes_of(phase.imports[static_cast<std::size_t>(peer.index)]);
  return link_.peek(peer.meeting, static_cast<int>(phase_), position, nbytes - position);
}

std::size_t Exchange::nbytes_of(const Range& range) const {
  const Tensor& tensor =
      call_.operation.input.defined() ? call_.operation.input : call_.operation.output;
  return static_cast<std::size_t>(range.numel) * size_of(tensor.dtype());
}

}  // namespace fsdptrain::comm
