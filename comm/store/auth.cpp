#include "comm/store/auth.h"

#include <algorithm>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

constexpr std::size_t kMacBytes = 32;

const unsigned char* unsigned_bytes(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::string hmac_sha256(const Secret& key, std::string_view bytes) {
  std::string mac(kMacBytes, '\0');
  unsigned int nbytes = 0;
  const bool is_done =
      ::HMAC(::EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()),
             unsigned_bytes(bytes), bytes.size(), reinterpret_cast<unsigned char*>(mac.data()),
             &nbytes) != nullptr;
  check(is_done && nbytes == kMacBytes, "store: HMAC-SHA256 must give {} bytes, got {}", kMacBytes,
        nbytes);
  return mac;
}

void fill_random(char* bytes, std::size_t nbytes) {
  const int status =
      ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes), static_cast<int>(nbytes));
  check(status == 1, "store: the system must give {} random bytes, got status {}", nbytes, status);
}

// Every field has a fixed size or its length before it: two transcripts never have the same bytes.
std::string bytes_of(std::string_view label, const Transcript& transcript) {
  return WireWriter()
      .text16(label)
      .u8(kVersion)
      .text16(transcript.identity.job_id)
      .u32(static_cast<std::uint32_t>(transcript.identity.rank))
      .u32(static_cast<std::uint32_t>(transcript.identity.world_size))
      .text16(transcript.client_nonce)
      .text16(transcript.server_nonce)
      .take();
}

Secret derive(const Secret& token, std::string_view label, const Transcript& transcript) {
  std::string bytes = hmac_sha256(token, bytes_of(label, transcript));
  Secret key = Secret::from_bytes(bytes);
  ::OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

}  // namespace

Secret Secret::random() {
  Secret secret;
  fill_random(secret.bytes_.data(), kBytes);
  return secret;
}

Secret Secret::from_bytes(std::string_view bytes) {
  check<ConfigError>(bytes.size() == kBytes, "store: a token must have {} bytes, got {}", kBytes,
                     bytes.size());
  Secret secret;
  std::ranges::copy(bytes, secret.bytes_.begin());
  return secret;
}

Secret::~Secret() {
  ::OPENSSL_cleanse(bytes_.data(), kBytes);
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

std::string make_proof(const Secret& token, Role prover, const Transcript& transcript) {
  return hmac_sha256(token, bytes_of(prover == Role::Server ? "fsdptrain store proof of the server"
                                                            : "fsdptrain store proof of a rank",
                                     transcript));
}

bool is_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

SessionKeys derive_keys(const Secret& token, const Transcript& transcript) {
  return {.from_client = derive(token, "fsdptrain store key from client", transcript),
          .from_server = derive(token, "fsdptrain store key from server", transcript)};
}

std::string Sealer::seal(FrameType type, std::string_view body) {
  const std::size_t length = kHeaderBytes + kSealBytes + body.size() - sizeof(std::uint32_t);
  WireWriter writer;
  writer.u32(static_cast<std::uint32_t>(length))
      .u8(static_cast<std::uint8_t>(type))
      .u8(kVersion)
      .u64(next_++)
      .raw(body);
  std::string frame = writer.take();
  frame += hmac_sha256(key_, frame);
  return frame;
}

std::string_view Opener::open(const Frame& frame) {
  const std::string_view bytes = frame.bytes;
  check<ProtocolError>(bytes.size() >= kHeaderBytes + kSealBytes,
                       "store: a sealed frame must have {} bytes, got {}",
                       kHeaderBytes + kSealBytes, bytes.size());
  const std::string_view covered = bytes.substr(0, bytes.size() - kMacBytes);
  check<ProtocolError>(is_equal(bytes.substr(covered.size()), hmac_sha256(key_, covered)),
                       "store: the MAC of frame {} does not fit it", next_);
  WireReader reader(covered.substr(kHeaderBytes), "sealed frame");
  const std::uint64_t number = reader.u64();
  check<ProtocolError>(number == next_, "store: a frame must have sequence number {}, got {}",
                       next_, number);
  ++next_;
  return reader.rest();
}

}  // namespace fsdptrain::comm::store
