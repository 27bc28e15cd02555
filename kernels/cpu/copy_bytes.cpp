#include "kernels/cpu/copy_bytes.h"

#include "kernels/cpu/parallel.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Of one task.
inline constexpr std::int64_t kCopyBlock = std::int64_t{1} << 18;

// What non-temporal stores write at once: less would be read first.
inline constexpr std::int64_t kLine = 64;

// `to` begins a line. Sanitizers do not see non-temporal stores: they get others.
FSDPTRAIN_HOST_DEVICE void stream_line(char* to, const char* from) {
#if !defined(__SSE2__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __builtin_memcpy(to, from, kLine);
#elif defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  auto* const lanes = reinterpret_cast<__m256i*>(to);
  const auto* const source = reinterpret_cast<const __m256i*>(from);
  const __m256i first = _mm256_loadu_si256(source);
  const __m256i second = _mm256_loadu_si256(source + 1);
  _mm256_stream_si256(lanes, first);
  _mm256_stream_si256(lanes + 1, second);
#else
  auto* const lanes = reinterpret_cast<__m128i*>(to);
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  const __m128i first = _mm_loadu_si128(source);
  const __m128i second = _mm_loadu_si128(source + 1);
  const __m128i third = _mm_loadu_si128(source + 2);
  const __m128i fourth = _mm_loadu_si128(source + 3);
  _mm_stream_si128(lanes, first);
  _mm_stream_si128(lanes + 1, second);
  _mm_stream_si128(lanes + 2, third);
  _mm_stream_si128(lanes + 3, fourth);
#endif
}

// Non-temporal stores are ordered by nothing else, not even by a release store of their thread.
FSDPTRAIN_HOST_DEVICE void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

FSDPTRAIN_HOST_DEVICE void stream_block(char* to, const char* from, std::int64_t nbytes) {
  const auto past_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  const std::int64_t head = min(nbytes, (kLine - past_line) % kLine);
  __builtin_memcpy(to, from, static_cast<std::size_t>(head));
  std::int64_t i = head;
  for (; i + kLine <= nbytes; i += kLine) {
    stream_line(to + i, from + i);
  }
  __builtin_memcpy(to + i, from + i, static_cast<std::size_t>(nbytes - i));
  // On the thread that stored, before the pool tells the caller.
  finish_streaming();
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::copy_bytes<kIsa>(const Launch& launch, void* to, const void* from, std::int64_t nbytes,
                           Caching caching) {
  char* const out = static_cast<char*>(to);
  const char* const in = static_cast<const char*>(from);
  parallel_blocks(launch, nbytes, kCopyBlock, [&](std::int64_t begin, std::int64_t end) {
    switch (caching) {
      case Caching::Normal:
        __builtin_memcpy(out + begin, in + begin, static_cast<std::size_t>(end - begin));
        return;
      case Caching::Stream:
        stream_block(out + begin, in + begin, end - begin);
        return;
    }
  });
}

}  // namespace fsdptrain::kernels
