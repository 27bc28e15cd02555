#include "comm/shm/segment.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/error.h"

namespace fsdptrain::comm {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::array<char, 16> kMagic{"fsdptrain shm 2"};
constexpr std::uint64_t kMaxArenaBytes = std::uint64_t{1} << 42;
// A process has addresses for four times as much.
constexpr std::uint64_t kMaxBytesOfAll = std::uint64_t{1} << 45;

// At the begin of the memory.
struct Header {
  std::array<char, 16> magic{};
  std::int32_t num_ranks = 0;
  std::uint64_t arena_bytes = 0;
};

// Where the parts lie; each begins on a page.
struct Layout {
  explicit Layout(const Segment::Shape& shape)
      : board_bytes(whole_pages(Board::nbytes(shape.num_ranks))),
        staging_bytes(whole_pages(Board::staging_nbytes(shape.num_ranks))),
        arena_bytes(whole_pages(shape.arena_bytes)),
        boards(kPageBytes),
        arenas(boards + 2 * (board_bytes + staging_bytes)),
        end(arenas + static_cast<std::uint64_t>(shape.num_ranks) * arena_bytes) {}

  static std::uint64_t whole_pages(std::uint64_t nbytes) {
    return (nbytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  std::uint64_t board_bytes;
  std::uint64_t staging_bytes;
  std::uint64_t arena_bytes;
  std::uint64_t boards;
  std::uint64_t arenas;
  std::uint64_t end;
};

bool is_valid(const Segment::Shape& shape) {
  return shape.num_ranks >= 1 && shape.num_ranks <= kMaxRanksPerHost &&
         shape.arena_bytes <= kMaxArenaBytes;
}

Board board_at(std::span<std::byte> bytes, const Segment::Shape& shape, std::uint64_t index) {
  const Layout layout(shape);
  const std::uint64_t begin = layout.boards + index * (layout.board_bytes + layout.staging_bytes);
  return {bytes.subspan(begin, layout.board_bytes),
          bytes.subspan(begin + layout.board_bytes, layout.staging_bytes), shape.num_ranks};
}

// What the user set, where that is the cause: "; the limit is 4096 bytes: raise it (ulimit -f)".
std::string limit_text(__rlimit_resource resource, const char* option) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
             ? fmt::format("; the limit is {} bytes: raise it (ulimit {})", limit.rlim_cur, option)
             : "";
}

}  // namespace

std::uint64_t arena_bytes(int num_ranks, std::uint64_t machine_bytes) {
  return std::min({machine_bytes, kMaxArenaBytes,
                   kMaxBytesOfAll / static_cast<std::uint64_t>(std::max(num_ranks, 1))});
}

std::uint64_t arena_bytes(int num_ranks) {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L));
  return arena_bytes(num_ranks, pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

int Segment::create(const Shape& shape) {
  check<ConfigError>(is_valid(shape),
                     "shared memory: 1 to {} ranks and arenas of up to {} bytes, got {} and {}",
                     kMaxRanksPerHost, kMaxArenaBytes, shape.num_ranks, shape.arena_bytes);
  const int descriptor = ::memfd_create("fsdptrain", MFD_ALLOW_SEALING);
  check<IoError>(descriptor >= 0, "shared memory: making it failed: {}", std::strerror(errno));
  const Header header{kMagic, shape.num_ranks, shape.arena_bytes};
  const auto size = static_cast<off_t>(Layout(shape).end);
  if (::ftruncate(descriptor, size) != 0 ||
      ::pwrite(descriptor, &header, sizeof(header), 0) != ssize_t{sizeof(header)} ||
      // Nobody takes bytes away that others have mapped.
      ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int reason = errno;
    ::close(descriptor);
    fail<IoError>("shared memory: {} bytes are refused: {}{}", size, std::strerror(reason),
                  reason == EFBIG ? limit_text(RLIMIT_FSIZE, "-f") : "");
  }
  return descriptor;
}

Segment::Segment(int descriptor) {
  Header header;
  struct stat status {};
  check<DataError>(::fstat(descriptor, &status) == 0 &&
                       ::pread(descriptor, &header, sizeof(header), 0) == ssize_t{sizeof(header)} &&
                       header.magic == kMagic,
                   "shared memory: descriptor {} is not that of this version's ranks", descriptor);
  shape_ = {header.num_ranks, header.arena_bytes};
  check<DataError>(
      is_valid(shape_) && static_cast<std::uint64_t>(status.st_size) == Layout(shape_).end,
      "shared memory: {} bytes do not fit {} ranks with arenas of {}", status.st_size,
      shape_.num_ranks, shape_.arena_bytes);
  const auto nbytes = static_cast<std::size_t>(status.st_size);
  void* address =
      ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  // It is no memory yet, and nothing that the size of a model changes.
  const int reason = errno;
  check<IoError>(address != MAP_FAILED, "shared memory: mapping {} bytes failed: {}{}", nbytes,
                 std::strerror(reason), reason == ENOMEM ? limit_text(RLIMIT_AS, "-v") : "");
  bytes_ = {static_cast<std::byte*>(address), nbytes};
  // A core of a rank has no need of the arenas of all, which are much larger than what is used.
  ::madvise(address, nbytes, MADV_DONTDUMP);
}

Segment::~Segment() {
  ::munmap(bytes_.data(), bytes_.size());
}

Board Segment::training() const {
  return board_at(bytes_, shape_, 0);
}

Board Segment::control() const {
  return board_at(bytes_, shape_, 1);
}

std::span<std::byte> Segment::arena(int rank) const {
  const Layout layout(shape_);
  return bytes_.subspan(layout.arenas + static_cast<std::uint64_t>(rank) * layout.arena_bytes,
                        shape_.arena_bytes);
}

void Segment::report_end(int rank, std::string_view text) const noexcept {
  training().report_end(rank, text);
  control().report_end(rank, text);
}

}  // namespace fsdptrain::comm
