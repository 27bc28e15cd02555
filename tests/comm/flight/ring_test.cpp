#include "comm/flight/ring.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/flight/reader.h"
#include "comm/ranks.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;
using doctest::Contains;

class SetClock final : public Clock {
 public:
  Nanoseconds now() const override { return time; }

  Nanoseconds time{5s};
};

FlightMemory small_memory(std::uint32_t capacity) {
  return FlightMemory::create({.rank = 2, .world_size = 4, .attempt = 7, .host = "node1"},
                              {.capacity = capacity, .names_capacity = 0});
}

// Every field of it is a function of `number`.
FlightRecord record_of(std::uint64_t number) {
  FlightRecord record;
  record.op = static_cast<std::uint8_t>(number % 11);
  record.reduce_op = static_cast<std::uint8_t>(number % 5);
  record.dtype = static_cast<std::uint8_t>(number % 7);
  record.is_point_to_point = number % 2 == 1;
  record.counts_vary = number % 3 == 1;
  record.deadline = static_cast<std::uint16_t>(number * 17);
  record.root = static_cast<int>(number % 1000) - 1;
  record.group = number * 3;
  record.group_size = static_cast<std::uint32_t>(number % 100);
  record.set_group_name(fmt::format("group {}", number % 1000));
  record.sequence = number * 5;
  const auto low = static_cast<std::uint32_t>(number);
  record.tag = {low * 2, low * 4, low * 6, static_cast<std::uint8_t>(number % 13)};
  record.count = number * 7;
  record.nbytes = number * 11;
  record.longest_wait = Nanoseconds(number * 13);
  record.straggler = static_cast<int>(number % 500);
  record.call_site = low * 8;
  return record;
}

bool is_record_of(const FlightRecord& record, std::uint64_t number) {
  const FlightRecord want = record_of(number);
  return record.number == number && record.op == want.op && record.reduce_op == want.reduce_op &&
         record.dtype == want.dtype && record.is_point_to_point == want.is_point_to_point &&
         record.counts_vary == want.counts_vary && record.deadline == want.deadline &&
         record.root == want.root && record.group == want.group &&
         record.group_size == want.group_size &&
         record.group_name_text() == want.group_name_text() && record.sequence == want.sequence &&
         record.tag == want.tag && record.count == want.count && record.nbytes == want.nbytes &&
         record.longest_wait == want.longest_wait && record.straggler == want.straggler &&
         record.call_site == want.call_site;
}

FlightSnapshot read(const FlightRing& ring) {
  return read_flight_ring(ring.memory().descriptor(), "ring");
}

// A value at an offset of the ring's bytes, over what is there.
template <class T>
void overwrite(int descriptor, off_t offset, T value) {
  REQUIRE(::pwrite(descriptor, &value, sizeof(value), offset) == sizeof(value));
}

constexpr off_t kHeaderBytes = 256;
constexpr off_t kRecordBytes = 128;

std::vector<std::uint64_t> numbers_of(const FlightSnapshot& ring) {
  std::vector<std::uint64_t> numbers;
  for (const FlightRecord& record : ring.records) {
    numbers.push_back(record.number);
  }
  return numbers;
}

// Runs in a child process that ends by SIGKILL in any case.
pid_t start_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::raise(SIGKILL);
  }
  REQUIRE(child > 0);
  return child;
}

void expect_killed(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace

TEST_SUITE("comm/flight_ring") {
  TEST_CASE("a record is read as it was written, with its header") {
    SetClock clock;
    FlightRing ring(small_memory(8), clock);
    clock.time = 6s;
    CHECK(ring.begin(record_of(0)) == 0);
    clock.time = 7s;
    ring.started(0);
    clock.time = 9s;
    ring.completed(0);

    const FlightSnapshot read_back = read(ring);
    CHECK(read_back.header.identity.rank == 2);
    CHECK(read_back.header.identity.world_size == 4);
    CHECK(read_back.header.identity.attempt == 7);
    CHECK(read_back.header.identity.host == "node1");
    CHECK(read_back.header.capacity == 8);
    CHECK(read_back.header.pid == ::getpid());
    CHECK(read_back.header.start_clock == 5s);
    CHECK(std::chrono::abs(read_back.header.start_date -
                           std::chrono::system_clock::now().time_since_epoch()) < 1h);
    CHECK(read_back.header.num_written == 1);
    REQUIRE(read_back.records.size() == 1);
    const FlightRecord& record = read_back.records[0];
    CHECK(is_record_of(record, 0));
    CHECK(record.state == FlightState::Completed);
    CHECK(record.posted == 6s);
    CHECK(record.started == 7s);
    CHECK(record.completed == 9s);
    CHECK(read_back.num_lost == 0);
    CHECK(read_back.num_torn == 0);
  }

  TEST_CASE("a ring of any capacity keeps its last records, oldest first, and counts the rest") {
    for (const std::uint32_t capacity : {1U, 2U, 7U, 8U}) {
      for (const std::uint64_t num_written : {0U, 1U, 2U, 7U, 8U, 9U, 23U, 24U}) {
        CAPTURE(capacity);
        CAPTURE(num_written);
        FlightRing ring(small_memory(capacity));
        for (std::uint64_t number = 0; number < num_written; ++number) {
          REQUIRE(ring.begin(record_of(number)) == number);
        }
        const FlightSnapshot read_back = read(ring);
        const std::uint64_t kept = std::min<std::uint64_t>(capacity, num_written);
        REQUIRE(read_back.records.size() == kept);
        CHECK(read_back.num_lost == num_written - kept);
        CHECK(read_back.header.num_written == num_written);
        CHECK(ring.num_written() == num_written);
        for (std::uint64_t i = 0; i < kept; ++i) {
          CHECK(is_record_of(read_back.records[i], num_written - kept + i));
        }
      }
    }
  }

  TEST_CASE("the newest records alone are read, around the end of the memory too") {
    for (const std::uint64_t num_written : {0, 2, 5, 8, 13, 19}) {
      FlightRing ring(small_memory(8));
      for (std::uint64_t number = 0; number < num_written; ++number) {
        ring.begin(record_of(number));
      }
      for (const std::uint32_t max_records : {1, 3, 7, 8, 100}) {
        CAPTURE(num_written);
        CAPTURE(max_records);
        const FlightSnapshot newest =
            read_newest_records(ring.memory().descriptor(), "ring", max_records);
        const std::uint64_t wanted =
            std::min<std::uint64_t>({num_written, std::uint64_t{max_records}, 8});
        REQUIRE(newest.records.size() == wanted);
        for (std::uint64_t i = 0; i < wanted; ++i) {
          CHECK(is_record_of(newest.records[i], num_written - wanted + i));
        }
        CHECK(newest.num_torn == 0);
        CHECK(newest.num_lost == num_written - wanted);
      }
    }
  }

  TEST_CASE("a record only goes forward") {
    SetClock clock;
    FlightRing ring(small_memory(8), clock);
    const auto state_of = [&](std::uint64_t number) { return read(ring).records.at(number).state; };
    ring.begin({});
    CHECK(state_of(0) == FlightState::Posted);
    ring.started(0);
    CHECK(state_of(0) == FlightState::Started);
    ring.completed(0);
    clock.time += 1s;
    ring.failed(0);
    ring.started(0);
    CHECK(state_of(0) == FlightState::Completed);
    CHECK(read(ring).records[0].completed == 5s);
    CHECK(read(ring).records[0].started == 5s);

    ring.begin({});
    ring.failed(1);
    ring.completed(1);
    CHECK(state_of(1) == FlightState::Failed);
    CHECK(read(ring).records[1].started == 0s);
    CHECK(read(ring).records[1].completed == 6s);
  }

  TEST_CASE("the longest wait of a record is kept, with the rank it was for") {
    FlightRing ring(small_memory(8));
    ring.begin({});
    CHECK(read(ring).records[0].straggler == kNoRank);
    ring.waited(0, 3, 0s);
    CHECK(read(ring).records[0].straggler == 3);
    ring.waited(0, 1, 20ms);
    ring.waited(0, 0, 20ms);
    ring.waited(0, 2, 10ms);
    CHECK(read(ring).records[0].straggler == 1);
    CHECK(read(ring).records[0].longest_wait == 20ms);
  }

  TEST_CASE("what concerns a record that was replaced changes nothing") {
    FlightRing ring(small_memory(2));
    for (std::uint64_t number = 0; number < 3; ++number) {
      ring.begin(record_of(number));
    }
    ring.started(0);
    ring.completed(0);
    ring.failed(0);
    ring.waited(0, 3, 1h);
    const FlightSnapshot read_back = read(ring);
    CHECK(numbers_of(read_back) == std::vector<std::uint64_t>{1, 2});
    CHECK(is_record_of(read_back.records[1], 2));
    CHECK(read_back.records[1].state == FlightState::Posted);
    // The oldest that is still there.
    ring.started(1);
    CHECK(read(ring).records[0].state == FlightState::Started);
  }

  TEST_CASE("a number that was never given is refused") {
    FlightRing ring(small_memory(2));
    ring.begin({});
    CHECK_THROWS_WITH_AS(
        ring.started(1),
        Contains("flight ring: the number must be below that of the 1 records begun, got 1"),
        MisuseError);
    CHECK_THROWS_AS(ring.completed(2), MisuseError);
    CHECK_THROWS_AS(ring.failed(1), MisuseError);
    CHECK_THROWS_AS(ring.waited(1, 0, 1s), MisuseError);
  }

  TEST_CASE("a longer group name loses its end, and only it") {
    FlightRecord record;
    record.set_group_name("a longer group name");
    CHECK(record.group_name_text() == "a longer group ");
    record.set_group_name("fsdp");
    CHECK(record.group_name_text() == "fsdp");
    CHECK(record.group_name == std::array<char, 16>{'f', 's', 'd', 'p'});
  }

  TEST_CASE("memory that was written before is written on, across a killed writer") {
    const FlightMemory launchers = small_memory(4);
    CHECK(read_flight_ring(launchers.descriptor(), "ring").header.pid == 0);
    const FlightIdentity identity = {.rank = 2, .world_size = 4, .attempt = 7, .host = "other"};
    const auto adopt = [&] { return FlightMemory::adopt(::dup(launchers.descriptor()), identity); };
    expect_killed(start_child([&] {
      FlightRing ring(adopt());
      for (std::uint64_t number = 0; number < 6; ++number) {
        ring.begin(record_of(number));
      }
      ring.started(5);
    }));
    FlightSnapshot ring = read_flight_ring(launchers.descriptor(), "ring");
    CHECK(ring.header.pid != 0);
    CHECK(ring.header.pid != ::getpid());
    CHECK(ring.header.identity.host == "node1");
    CHECK(numbers_of(ring) == std::vector<std::uint64_t>{2, 3, 4, 5});
    CHECK(ring.num_lost == 2);
    CHECK(ring.records[3].state == FlightState::Started);

    FlightRing second(adopt());
    CHECK(second.num_written() == 6);
    CHECK(second.begin(record_of(6)) == 6);
    ring = read_flight_ring(launchers.descriptor(), "ring");
    CHECK(ring.header.pid == ::getpid());
    CHECK(numbers_of(ring) == std::vector<std::uint64_t>{3, 4, 5, 6});
  }

  TEST_CASE("only who asks for it lets other programs inherit the descriptor") {
    const auto is_closed_on_exec = [](const FlightMemory& memory) {
      return (::fcntl(memory.descriptor(), F_GETFD) & FD_CLOEXEC) != 0;
    };
    const FlightIdentity identity;
    CHECK(is_closed_on_exec(FlightMemory::create(identity)));
    const FlightMemory open = FlightMemory::create(identity, {.inheritable = true});
    CHECK_FALSE(is_closed_on_exec(open));
    // Who inherited it does not pass it on.
    CHECK(is_closed_on_exec(FlightMemory::adopt(::dup(open.descriptor()), identity)));
    CHECK(open.capacity() == 4096);
  }

  TEST_CASE("nobody can take memory away from a writer") {
    const FlightMemory memory = small_memory(4);
    CHECK(::ftruncate(memory.descriptor(), 0) == -1);
    CHECK(errno == EPERM);
  }

  TEST_CASE("a descriptor is closed with its memory, also where it is refused") {
    const auto is_open = [](int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; };
    int descriptor = -1;
    {
      FlightMemory memory = small_memory(4);
      const FlightMemory moved = std::move(memory);
      descriptor = moved.descriptor();
      CHECK(is_open(descriptor));
    }
    CHECK_FALSE(is_open(descriptor));
    descriptor = ::memfd_create("empty", MFD_CLOEXEC);
    CHECK_THROWS_AS(FlightMemory::adopt(descriptor, {}), DataError);
    CHECK_FALSE(is_open(descriptor));
  }

  TEST_CASE("the ring of another rank, world or attempt is refused") {
    const FlightMemory memory = small_memory(4);
    const auto adopt = [&](const FlightIdentity& identity) {
      FlightMemory::adopt(::dup(memory.descriptor()), identity);
    };
    CHECK_NOTHROW(adopt({.rank = 2, .world_size = 4, .attempt = 7}));
    CHECK_THROWS_WITH_AS(adopt({.rank = 1, .world_size = 4, .attempt = 7}),
                         Contains("must be of rank 1 of 4, attempt 7, got one of rank 2 of 4, "
                                  "attempt 7"),
                         ConfigError);
    CHECK_THROWS_AS(adopt({.rank = 2, .world_size = 5, .attempt = 7}), ConfigError);
    CHECK_THROWS_AS(adopt({.rank = 2, .world_size = 4, .attempt = 8}), ConfigError);
  }

  TEST_CASE("an identity or a capacity that cannot be is refused") {
    const auto expect = [](const FlightIdentity& identity, std::uint32_t capacity,
                           const char* text) {
      CHECK_THROWS_WITH_AS(FlightMemory::create(identity, {.capacity = capacity}), Contains(text),
                           ConfigError);
    };
    expect({.world_size = 0}, 1, "flight ring: the world size must be 1 to 1048576, got 0");
    expect({.world_size = kMaxWorldSize + 1}, 1, "got 1048577");
    expect({.rank = -1}, 1, "flight ring: the rank must be 0 to 0, got -1");
    expect({.rank = 4, .world_size = 4}, 1, "flight ring: the rank must be 0 to 3, got 4");
    expect({.host = std::string(65, 'h')}, 1, "at most 64 printable characters, got \"hhh");
    expect({.host = "a\nb"}, 1, "at most 64 printable characters, got \"a\\nb\"");
    expect({}, 0, "flight ring: the capacity must be 1 to 1048576 records, got 0");
    expect({}, kMaxFlightCapacity + 1, "got 1048577");
    CHECK_NOTHROW(FlightMemory::create({.host = std::string(64, 'h')}, {.capacity = 1}));
  }

  TEST_CASE("torn and damaged records are left out and counted") {
    const auto with = [](off_t offset, auto value) {
      FlightRing ring(small_memory(4));
      for (std::uint64_t number = 0; number < 6; ++number) {
        ring.begin(record_of(number));
      }
      // Slot 0 holds record 4.
      overwrite(ring.memory().descriptor(), kHeaderBytes + offset, value);
      const FlightSnapshot read_back = read(ring);
      CHECK(read_back.num_lost == 2);
      return std::pair(read_back.num_torn, numbers_of(read_back));
    };
    using Numbers = std::vector<std::uint64_t>;
    const std::pair<std::uint64_t, Numbers> torn = {1, {2, 3, 5}};
    const std::pair<std::uint64_t, Numbers> whole = {0, {2, 3, 4, 5}};
    CHECK(with(0, std::uint32_t{6}) == whole);
    CHECK(with(0, std::uint32_t{5}) == torn);
    CHECK(with(4, std::uint32_t{kMaxWorldSize + 1}) == torn);
    CHECK(with(8, std::uint64_t{5}) == torn);
    // In its slot, but older than the ring, or not yet written.
    CHECK(with(8, std::uint64_t{0}) == torn);
    CHECK(with(8, std::uint64_t{8}) == torn);
    CHECK(with(19, std::uint8_t{0}) == torn);
    CHECK(with(19, std::uint8_t{5}) == torn);
    CHECK(with(20, std::int32_t{-2}) == torn);
    CHECK(with(20, std::int32_t{kMaxWorldSize}) == torn);
    CHECK(with(33, std::uint8_t{7}) == torn);
    CHECK(with(47, 'x') == torn);
    CHECK(with(69, std::uint8_t{4}) == torn);
    CHECK(with(120, std::int32_t{kMaxWorldSize}) == torn);
  }

  TEST_CASE("a writer killed within a record leaves one torn, and the next one mends it") {
    FlightMemory memory = small_memory(4);
    const int descriptor = memory.descriptor();
    FlightRing ring(std::move(memory));
    ring.begin(record_of(0));
    overwrite(descriptor, kHeaderBytes + kRecordBytes, std::uint32_t{1});
    CHECK(read(ring).num_torn == 1);
    CHECK(read(ring).num_lost == 0);
    ring.begin(record_of(1));
    CHECK(read(ring).num_torn == 0);
    CHECK(is_record_of(read(ring).records.at(1), 1));
  }

  TEST_CASE("a record whose writer was killed before it was counted is read") {
    FlightRing ring(small_memory(4));
    ring.begin(record_of(0));
    ring.begin(record_of(1));
    overwrite(ring.memory().descriptor(), 56, std::uint64_t{1});
    const FlightSnapshot read_back = read(ring);
    CHECK(numbers_of(read_back) == std::vector<std::uint64_t>{0, 1});
    CHECK(read_back.header.num_written == 2);
  }

  TEST_CASE("a deadline is noted in whole seconds, rounded up, and a long one as none") {
    CHECK(deadline_seconds(Nanoseconds{0}) == 0);
    CHECK(deadline_seconds(Nanoseconds{1}) == 1);
    CHECK(deadline_seconds(1s) == 1);
    CHECK(deadline_seconds(1s + Nanoseconds{1}) == 2);
    CHECK(deadline_seconds(65534s) == 65534);
    CHECK(deadline_seconds(65535s) == kNoDeadline);
    CHECK(deadline_seconds(Nanoseconds::max()) == kNoDeadline);
    CHECK(FlightRecord{}.deadline == kNoDeadline);
    // docs/comm.md: at byte 70 of a record.
    FlightRing ring(small_memory(1));
    FlightRecord record;
    record.deadline = 600;
    ring.begin(record);
    std::uint16_t bytes = 0;
    REQUIRE(::pread(ring.memory().descriptor(), &bytes, sizeof(bytes), kHeaderBytes + 70) == 2);
    CHECK(bytes == 600);
  }

  TEST_CASE("versions that wrap around do not make a record an unwritten one") {
    FlightRing ring(small_memory(1));
    ring.begin(record_of(0));
    overwrite(ring.memory().descriptor(), kHeaderBytes, std::uint32_t{0xfffffffe});
    ring.started(0);
    CHECK(read(ring).records.size() == 1);
  }

  TEST_CASE("what is no ring is refused with its name and values") {
    const testing::TemporaryFolder folder;
    const FlightRing ring(small_memory(4));
    std::string bytes(kHeaderBytes + 4 * kRecordBytes, '\0');
    REQUIRE(::pread(ring.memory().descriptor(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    const auto expect = [&](const std::string& content, const char* text) {
      testing::write_file(folder / "ring", content);
      CHECK_THROWS_WITH_AS(read_flight_ring(folder / "ring"), Contains(text), DataError);
    };
    const auto with = [&](std::size_t offset, auto value) {
      std::string changed = bytes;
      std::memcpy(changed.data() + offset, &value, sizeof(value));
      return changed;
    };
    testing::write_file(folder / "ring", bytes);
    CHECK(read_flight_ring(folder / "ring").header.identity.rank == 2);
    CHECK_THROWS_WITH_AS(read_flight_ring(folder / "none"), Contains("there is no such file"),
                         DataError);
    expect("", "/ring: not a whole flight ring: it ends within 256 bytes at 0");
    expect(bytes.substr(0, 255), "it ends within 256 bytes at 0");
    expect(bytes.substr(0, bytes.size() - 1),
           "4 records and 0 bytes for names make 768 bytes, got 767");
    expect(bytes + '\0', "for names make 768 bytes, got 769");
    expect(with(7, '2'), "not a flight ring: it must begin with FSDPFLT1, got \"FSDPFLT2\"");
    expect(with(8, std::uint32_t{1}), "the version must be 2, got 1");
    expect(with(12, std::uint32_t{64}), "a record must have 128 bytes, got 64");
    expect(with(16, std::uint32_t{0}), "the capacity must be 1 to 1048576 records, got 0");
    expect(with(16, std::uint32_t{0xffffffff}), "records, got 4294967295");
    expect(with(16, std::uint32_t{5}), "5 records and 0 bytes for names make 896 bytes, got 768");
    expect(with(24, std::int32_t{-1}), "the rank must be below the world size 4, got -1");
    expect(with(24, std::int32_t{4}), "the rank must be below the world size 4, got 4");
    expect(with(28, std::int32_t{0}), "the world size must be 1 to 1048576, got 0");
    expect(with(28, std::int32_t{kMaxWorldSize + 1}), "got 1048577");
    expect(with(36, std::uint32_t{1}), "the process must be a number of 31 bits");
    expect(with(56, ~std::uint64_t{0}), "records written must be at most 4611686018427387904, got");
    expect(with(65, '\x07'), "the host must be printable characters, then zeros");
    expect(with(100, 'x'), "the host must be printable characters, then zeros");
    expect(with(255, 'x'), "the end of the header must be zero");
    expect(with(132, 'x'), "the end of the header must be zero");
    expect(with(128, std::uint32_t{8}), "and 8 bytes for names make 776 bytes, got 768");
    expect(with(128, ~std::uint32_t{0}), "room for at most 16777216 bytes, got 4294967295");
    expect(with(136, std::uint64_t{1}), "the names must have at most 0 bytes, got 1");

    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    CHECK_THROWS_WITH_AS(read_flight_ring(pipe[0], "pipe"), Contains("pipe: not a flight ring"),
                         DataError);
    ::close(pipe[0]);
    ::close(pipe[1]);
    CHECK_THROWS_WITH_AS(read_flight_ring(-1, "nothing"), Contains("Bad file descriptor"), IoError);
  }

  TEST_CASE("a ring with any one byte changed is read or refused") {
    FlightRing ring(small_memory(3));
    for (std::uint64_t number = 0; number < 5; ++number) {
      ring.begin(record_of(number));
    }
    const int descriptor = ring.memory().descriptor();
    int num_refused = 0;
    for (off_t offset = 0; offset < kHeaderBytes + 3 * kRecordBytes; ++offset) {
      std::uint8_t old = 0;
      REQUIRE(::pread(descriptor, &old, 1, offset) == 1);
      for (const int value : {0, 1, 2, 0x7f, 0x80, 0xff}) {
        overwrite(descriptor, offset, static_cast<std::uint8_t>(value));
        try {
          const FlightSnapshot read_back = read(ring);
          CHECK(read_back.records.size() + read_back.num_torn <= 3);
        } catch (const DataError&) {
          ++num_refused;
        }
      }
      overwrite(descriptor, offset, old);
    }
    CHECK(num_refused > 500);
    CHECK(read(ring).records.size() == 3);
  }

  TEST_CASE("a reader beside a writer sees whole records only") {
    // Few slots: most are being written when they are read.
    FlightRing ring(small_memory(4));
    std::atomic<bool> is_over = false;
    std::thread writer([&] {
      for (std::uint64_t number = 0; !is_over; ++number) {
        ring.begin(record_of(number));
      }
    });
    const auto end = std::chrono::steady_clock::now() + 300ms;
    std::uint64_t num_read = 0;
    bool is_whole = true;
    while (std::chrono::steady_clock::now() < end) {
      for (const FlightRecord& record : read(ring).records) {
        is_whole = is_whole && is_record_of(record, record.number);
        ++num_read;
      }
    }
    is_over = true;
    writer.join();
    CHECK(is_whole);
    CHECK(num_read > 100);
  }

  TEST_CASE("a writer that is killed at any time leaves at most one record torn") {
    for (int i = 0; i < 20; ++i) {
      const FlightMemory memory = small_memory(64);
      const pid_t child = start_child([&] {
        FlightRing ring(FlightMemory::adopt(::dup(memory.descriptor()),
                                            {.rank = 2, .world_size = 4, .attempt = 7}));
        for (std::uint64_t number = 0;; ++number) {
          ring.begin(record_of(number));
          ring.started(number);
          ring.completed(number);
        }
      });
      while (read_flight_ring(memory.descriptor(), "ring").header.num_written < 100) {
        std::this_thread::yield();
      }
      ::kill(child, SIGKILL);
      expect_killed(child);
      const FlightSnapshot ring = read_flight_ring(memory.descriptor(), "ring");
      CHECK(ring.num_torn <= 1);
      CHECK(ring.records.size() + ring.num_torn == 64);
      for (const FlightRecord& record : ring.records) {
        REQUIRE(is_record_of(record, record.number));
        const bool is_last = record.number + 1 == ring.header.num_written;
        CHECK((is_last || record.state == FlightState::Completed));
      }
    }
  }
}

TEST_SUITE("comm/ranks") {
  TEST_CASE("runs of ranks are one text each") {
    const auto text = [](const std::vector<int>& ranks) { return ranks_text(ranks); };
    CHECK(text({}) == "");
    CHECK(text({3}) == "3");
    CHECK(text({0, 1}) == "0-1");
    CHECK(text({0, 1, 2, 5}) == "0-2, 5");
    CHECK(text({0, 2, 4}) == "0, 2, 4");
    CHECK(text({0, 2, 4, 6}) == "0-6 by 2");
    CHECK(text({0, 2, 3, 4}) == "0, 2-4");
    CHECK(text({1, 0}) == "1, 0");
    CHECK(text({0, 4, 1, 5}) == "0, 4, 1, 5");
    CHECK(named_ranks(std::vector<int>{}) == "no rank");
    CHECK(named_ranks(std::vector<int>{7}) == "rank 7");
    CHECK(named_ranks(std::vector<int>{7, 8}) == "ranks 7-8");
  }
}

}  // namespace fsdptrain::comm
