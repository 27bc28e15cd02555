#include <algorithm>
#include <stdexcept>

#include "comm/store/handshake.h"
#include "comm/store/messages.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace fsdptrain::comm::store;

// What must hold whatever the bytes are: not an Error, and so a find.
void expect(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

void read_body(const Frame& frame, const Secret& token) {
  if (frame.type == FrameType::Hello) {
    ServerHandshake(token, std::string(kNonceBytes, 'n')).challenge(frame);
  } else if (frame.type == FrameType::Challenge || frame.type == FrameType::Refused) {
    ClientHandshake({"job", 0, 1}, token, std::string(kNonceBytes, 'n')).answer(frame);
  } else if (frame.type == FrameType::Reply) {
    const Reply reply = decode_reply(frame.body());
    expect(encode_reply(reply) == frame.body(), "a reply has two encodings");
  } else if (frame.type >= FrameType::Set && frame.type <= FrameType::Goodbye) {
    // As if the seal had been taken off.
    const Request request = decode_request(frame.type, frame.body());
    expect(encode_request(request) == frame.body(), "a request has two encodings");
  } else {
    Opener(token).open(frame);
  }
}

}  // namespace

// The first byte says in which pieces the others arrive.
void fsdptrain::fuzz::read_hostile(std::span<const std::byte> bytes) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t piece = rest.empty() ? 1 : 1 + static_cast<unsigned char>(rest[0]);
  rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
  const Secret token = Secret::from_bytes(std::string(Secret::kBytes, 't'));
  FrameReader reader(kMaxFrame);
  std::size_t num_fed = 0;
  while (!rest.empty()) {
    std::string_view fed = rest.substr(0, piece);
    rest.remove_prefix(fed.size());
    num_fed += fed.size();
    while (const std::optional<Frame> frame = reader.read(fed)) {
      expect(encode_frame(frame->type, frame->body()) == frame->bytes, "a frame has two encodings");
      read_body(*frame, token);
    }
    expect(reader.buffered_bytes() <= num_fed, "a reader holds more than it was fed");
    expect(fed.empty(), "a reader leaves bytes");
  }
}
