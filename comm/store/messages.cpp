#include "comm/store/messages.h"

#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

void write_optional(WireWriter& writer, const std::optional<std::string>& value) {
  writer.u8(value ? 1 : 0);
  if (value) {
    writer.text32(*value);
  }
}

bool read_flag(WireReader& reader) {
  const int flag = reader.u8();
  check<ProtocolError>(flag <= 1, "store: a flag must be 0 or 1, got {}", flag);
  return flag == 1;
}

std::string read_value(WireReader& reader, std::size_t max_bytes) {
  const std::string_view value = reader.text32();
  check<ProtocolError>(value.size() <= max_bytes,
                       "store: a value must have at most {} bytes, got {}", max_bytes,
                       value.size());
  return std::string(value);
}

std::optional<std::string> read_optional(WireReader& reader) {
  return read_flag(reader) ? std::optional(read_value(reader, kMaxValue)) : std::nullopt;
}

std::string read_key(WireReader& reader) {
  const std::string_view key = reader.text16();
  check_key(key);
  return std::string(key);
}

std::vector<std::string> read_keys(WireReader& reader) {
  const std::size_t count = reader.u16();
  check<ProtocolError>(count >= 1 && count <= kMaxWaits,
                       "store: a wait must be for 1 to {} keys, got {}", kMaxWaits, count);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(read_key(reader));
  }
  return keys;
}

void write_keys(WireWriter& writer, const std::vector<std::string>& keys) {
  writer.u16(static_cast<std::uint16_t>(keys.size()));
  for (const std::string& key : keys) {
    writer.text16(key);
  }
}

bool names_one_key(FrameType type) {
  return type == FrameType::Set || type == FrameType::Get || type == FrameType::Add ||
         type == FrameType::CompareSet;
}

bool takes_value(FrameType type) {
  return type == FrameType::Set || type == FrameType::CompareSet ||
         type == FrameType::ReportFailure;
}

}  // namespace

std::string encode_request(const Request& request) {
  WireWriter writer;
  writer.u64(request.id);
  if (request.type == FrameType::Wait) {
    write_keys(writer, request.keys);
  } else if (names_one_key(request.type)) {
    writer.text16(request.keys.at(0));
  }
  if (takes_value(request.type)) {
    writer.text32(request.value);
  }
  if (request.type == FrameType::CompareSet) {
    write_optional(writer, request.expected);
  }
  if (request.type == FrameType::Add) {
    writer.u64(static_cast<std::uint64_t>(request.delta));
  }
  return writer.take();
}

Request decode_request(FrameType type, std::string_view body) {
  check<ProtocolError>(type >= FrameType::Set && type <= FrameType::Goodbye,
                       "store: a request must be of type {} to {}, got {}",
                       static_cast<int>(FrameType::Set), static_cast<int>(FrameType::Goodbye),
                       static_cast<int>(type));
  WireReader reader(body, "request");
  Request request{.type = type, .id = reader.u64()};
  if (type == FrameType::Wait) {
    request.keys = read_keys(reader);
  } else if (names_one_key(type)) {
    request.keys = {read_key(reader)};
  }
  if (takes_value(type)) {
    request.value =
        read_value(reader, type == FrameType::ReportFailure ? kMaxFailureText : kMaxValue);
  }
  if (type == FrameType::CompareSet) {
    request.expected = read_optional(reader);
  }
  if (type == FrameType::Add) {
    request.delta = static_cast<std::int64_t>(reader.u64());
  }
  reader.finish();
  return request;
}

std::string encode_reply(const Reply& reply) {
  WireWriter writer;
  writer.u64(reply.id).u8(static_cast<std::uint8_t>(reply.status));
  write_optional(writer, reply.value);
  write_keys(writer, reply.keys);
  return writer.take();
}

Reply decode_reply(std::string_view body) {
  WireReader reader(body, "reply");
  Reply reply{.id = reader.u64()};
  const int status = reader.u8();
  check<ProtocolError>(status >= static_cast<int>(ReplyStatus::Ok) &&
                           status <= static_cast<int>(ReplyStatus::Rejected),
                       "store: the status of a reply must be known, got {}", status);
  reply.status = static_cast<ReplyStatus>(status);
  reply.value = read_optional(reader);
  for (std::size_t count = reader.u16(); count > 0; --count) {
    reply.keys.push_back(read_key(reader));
  }
  reader.finish();
  return reply;
}

std::string encode_number(std::int64_t number) {
  return WireWriter().u64(static_cast<std::uint64_t>(number)).take();
}

std::optional<std::int64_t> decode_number(std::string_view bytes) {
  if (bytes.size() != sizeof(std::int64_t)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(WireReader(bytes, "number").u64());
}

}  // namespace fsdptrain::comm::store
