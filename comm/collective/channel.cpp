#include "comm/collective/channel.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "comm/collective/collective_record.h"
#include "comm/collective/whereabouts.h"
#include "comm/error.h"
#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

// How long nobody notices that a peer has left without a word.
constexpr Nanoseconds kLongestRest = std::chrono::milliseconds(20);

}  // namespace

// Operations that were issued together.
struct Channel::Batch final : public Pending {
  Batch(Channel& owner, std::vector<Exchange> of, Nanoseconds limit)
      : channel(owner), exchanges(std::move(of)), timeout(limit) {}

  void wait() override { channel.wait(*this); }
  void drop() noexcept override { channel.drop(*this); }

  Channel& channel;
  std::vector<Exchange> exchanges;
  // Of each of them in the flight ring.
  std::vector<std::uint64_t> records;
  Nanoseconds timeout;
  bool is_done = false;
  // Whom it waits for, or waited for last, and for how long in one go.
  int waited_for = -1;
  Nanoseconds waited{};
};

Channel::Channel(std::unique_ptr<Link> link, Options options)
    : link_(std::move(link)),
      options_(std::move(options)),
      sequences_(static_cast<std::size_t>(link_->size())),
      waits_(static_cast<std::size_t>(link_->size())) {}

Channel::~Channel() {
  if (failure_) {
    // Told already, but where an exception dropped a Work and was caught.
    link_->report_failure(text_of(failure_));
  } else if (!open_.empty()) {
    link_->report_failure(fmt::format("it left with {} not waited for",
                                      to_string(open_.front()->exchanges.front().frame())));
  }
  // Before the tensors of open operations, which it may still read.
  link_.reset();
}

void Channel::check_usable() {
  if (!thread_) {
    thread_ = std::this_thread::get_id();
  }
  check<MisuseError>(*thread_ == std::this_thread::get_id(),
                     "rank {}: another thread issues the operations of this world; only one may, "
                     "so that all ranks issue them in one order",
                     link_->rank());
  if (failure_) {
    report();
    std::rethrow_exception(failure_);
  }
  link_->check_failure();
}

void Channel::make_room(std::size_t num_exchanges) {
  std::size_t num_open = num_exchanges;
  for (const auto& batch : open_) {
    num_open += batch->exchanges.size();
  }
  while (num_open > Link::kMaxOpen) {
    num_open -= open_.front()->exchanges.size();
    wait(*open_.front());
  }
}

Exchange Channel::make_exchange(Call call, Exchange::Purpose purpose) {
  const Op op = call.operation.op;
  const bool is_pair = op == Op::Send || op == Op::Recv;
  const Members& members = *call.members;
  std::vector<Meeting> meetings;
  for (int index = 0; index < members.size(); ++index) {
    if (index != members.rank && (!is_pair || index == call.operation.root)) {
      const int peer = members.ranks[static_cast<std::size_t>(index)];
      meetings.push_back({peer, sequences_[static_cast<std::size_t>(peer)]++});
    }
  }
  return {*link_, std::move(call), std::move(meetings), purpose};
}

Work Channel::issue(std::vector<Call> calls, Nanoseconds timeout) {
  return post(std::move(calls), timeout, Exchange::Purpose::Move);
}

void Channel::meet(std::vector<Call> calls, Nanoseconds timeout) {
  post(std::move(calls), timeout, Exchange::Purpose::Compare).wait();
}

void Channel::finish() {
  check_usable();
  if (!open_.empty()) {
    const std::shared_ptr<Batch> last = open_.back();
    wait(*last);
  }
}

std::shared_ptr<Storage> Channel::allocate(std::uint64_t /*group_hash*/, std::size_t nbytes,
                                           bool /*is_symmetric*/) {
  return link_->allocate(nbytes);
}

Work Channel::post(std::vector<Call> calls, Nanoseconds timeout, Exchange::Purpose purpose) {
  std::vector<Exchange> exchanges;
  exchanges.reserve(calls.size());
  for (Call& call : calls) {
    exchanges.push_back(make_exchange(std::move(call), purpose));
  }
  make_room(exchanges.size());
  open_.push_back(std::make_shared<Batch>(*this, std::move(exchanges), timeout));
  const std::shared_ptr<Batch> batch = open_.back();
  try {
    for (Exchange& exchange : batch->exchanges) {
      if (options_.delay) {
        options_.delay();
      }
      if (options_.ring != nullptr) {
        const std::vector<Meeting>& meetings = exchange.meetings();
        batch->records.push_back(options_.ring->begin(
            record_of(exchange.call(), meetings.empty() ? Meeting{} : meetings.front(), timeout)));
      }
      exchange.post();
      show(Progress::Posted, exchange);
    }
  } catch (...) {
    fail_all();
  }
  return Work(batch);
}

void Channel::wait(const Batch& batch) {
  if (batch.is_done) {
    return;
  }
  check_usable();
  while (!batch.is_done) {
    const std::shared_ptr<Batch> first = open_.front();
    try {
      note(*first, &FlightRing::started);
      run(*first);
    } catch (...) {
      note(*first, &FlightRing::failed);
      fail_all();
    }
    note(*first, &FlightRing::completed);
    first->is_done = true;
    first->exchanges.clear();
    open_.pop_front();
  }
}

bool Channel::advance(Batch& batch) {
  // Slots for staged bytes go to one operation after the other, in the same order on all ranks.
  const auto first = std::ranges::find_if(
      batch.exchanges, [](const Exchange& exchange) { return !exchange.is_done(); });
  for (const Exchange& exchange : batch.exchanges) {
    exchange.check_bytes();
  }
  bool moved = first != batch.exchanges.end() && link_->advance(first->meetings());
  for (Exchange& exchange : batch.exchanges) {
    moved = exchange.advance() || moved;
  }
  return moved;
}

std::vector<Channel::Departure> Channel::departures(const Batch& batch) {
  std::vector<Departure> departed;
  for (std::size_t i = 0; i < batch.exchanges.size(); ++i) {
    if (batch.exchanges[i].is_done()) {
      continue;
    }
    for (const int rank : batch.exchanges[i].unfinished()) {
      if (const Presence presence = link_->presence(rank); presence != Presence::Here) {
        departed.push_back({i, rank, presence});
      }
    }
  }
  return departed;
}

void Channel::check_departed(const Batch& batch, std::span<const Departure> departed) {
  for (const auto& [index, rank, presence] : departed) {
    const Exchange& exchange = batch.exchanges[index];
    if (exchange.is_done() || !exchange.is_unfinished(rank)) {
      continue;
    }
    // Who leaves because of a failure has told it before.
    link_->check_failure();
    fail<PeerError>("rank {} {} before the end of {}, in which rank {} waits for it", rank,
                    presence == Presence::Left ? "left" : "died", to_string(exchange.frame()),
                    link_->rank());
  }
}

void Channel::run(Batch& batch) {
  const Deadline deadline(link_->clock(), batch.timeout);
  show(Progress::Waiting, batch.exchanges.front());
  int waited_for = -1;
  bool has_rested = false;
  while (true) {
    const std::uint32_t changes = link_->changes();
    // Before the last look: what a peer did before it left counts.
    const std::vector<Departure> departed =
        has_rested ? departures(batch) : std::vector<Departure>{};
    if (options_.delay) {
      options_.delay();
    }
    const bool moved = advance(batch);
    const auto late = std::ranges::find_if(
        batch.exchanges, [](const Exchange& exchange) { return !exchange.is_done(); });
    if (late == batch.exchanges.end()) {
      break;
    }
    if (moved) {
      continue;
    }
    check_departed(batch, departed);
    if (deadline.passed()) {
      fail_timeout(batch, *late);
    }
    if (late->waits_for() != waited_for) {
      waited_for = late->waits_for();
      show(Progress::Waiting, *late);
    }
    rest(batch, static_cast<std::size_t>(late - batch.exchanges.begin()), changes,
         std::min(kLongestRest, deadline.left()));
    has_rested = true;
  }
  show(Progress::Idle, batch.exchanges.back());
}

void Channel::rest(Batch& batch, std::size_t late, std::uint32_t changes, Nanoseconds limit) {
  const int rank = batch.exchanges[late].waits_for();
  const Nanoseconds begin = link_->clock().now();
  link_->rest(changes, limit);
  if (rank < 0) {
    return;
  }
  const Nanoseconds time = link_->clock().now() - begin;
  waits_[static_cast<std::size_t>(rank)] += time;
  batch.waited = rank == batch.waited_for ? batch.waited + time : time;
  batch.waited_for = rank;
  if (options_.ring != nullptr) {
    options_.ring->waited(batch.records[late], rank, batch.waited);
  }
}

void Channel::note(const Batch& batch, void (FlightRing::*event)(std::uint64_t number)) const {
  for (const std::uint64_t record : batch.records) {
    (options_.ring->*event)(record);
  }
}

void Channel::show(Progress progress, const Exchange& exchange) {
  link_->set_position(
      {progress, exchange.frame(), exchange.waits_for(), link_->clock().now().count()});
}

void Channel::fail_timeout(const Batch& batch, const Exchange& late) {
  fail<TimeoutError>("rank {}: {} did not end in {}, missing: {}\n{}", link_->rank(),
                     to_string(late.frame()), to_string(batch.timeout), named_ranks(late.missing()),
                     describe_whereabouts(*link_, link_->clock().now()));
}

void Channel::fail_all() {
  failure_ = std::current_exception();
  report();
  throw;
}

void Channel::report() const noexcept {
  options_.tell_all(text_of(failure_));
}

void Channel::drop(const Batch& batch) noexcept {
  if (batch.is_done || failure_) {
    return;
  }
  failure_ = std::make_exception_ptr(
      MisuseError(fmt::format("rank {}: the Work of {} was dropped without a wait; the other ranks "
                              "would wait for it forever",
                              link_->rank(), to_string(batch.exchanges.front().frame()))));
  // Where an exception drops it, that is what the others should hear.
  if (std::uncaught_exceptions() == 0) {
    report();
  }
}

void Channel::abort(std::string_view reason) const noexcept {
  options_.tell_all(reason);
}

}  // namespace fsdptrain::comm
