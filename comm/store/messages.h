#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store/protocol.h"

// The bodies of sealed frames.
namespace fsdptrain::comm::store {

// From a client. Fields that an operation does not have stay empty.
struct Request {
  FrameType type = FrameType::Get;
  // Larger than in every request before; a Cancel has the id of what it cancels.
  std::uint64_t id = 0;
  // One, or of Wait 1 to kMaxWaits.
  std::vector<std::string> keys{};
  // Of Set; the desired one of CompareSet; the text of ReportFailure.
  std::string value{};
  // Of CompareSet: nothing means that the key must not be there.
  std::optional<std::string> expected{};
  // Of Add.
  std::int64_t delta = 0;
};

std::string encode_request(const Request& request);
// ProtocolError where it is no request, a limit is exceeded or a key may not be.
Request decode_request(FrameType type, std::string_view body);

// On the wire: never renumber.
enum class ReplyStatus : std::uint8_t {
  Ok = 1,
  // The client gave up; `keys` are those that were not there.
  Cancelled = 2,
  // The store cannot do it, `value` says why; nothing has changed.
  Rejected = 3,
};

struct Reply {
  std::uint64_t id = 0;
  ReplyStatus status = ReplyStatus::Ok;
  // What is there now, where the operation returns it. Of Add 8 bytes, little-endian.
  std::optional<std::string> value{};
  std::vector<std::string> keys{};
};

std::string encode_reply(const Reply& reply);
Reply decode_reply(std::string_view body);

std::string encode_number(std::int64_t number);
// Nothing unless there are 8 bytes.
std::optional<std::int64_t> decode_number(std::string_view bytes);

}  // namespace fsdptrain::comm::store
