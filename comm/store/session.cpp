#include "comm/store/session.h"

#include <utility>

namespace fsdptrain::comm::store {

ClientSession::ClientSession(ClientOptions options)
    : handshake_(std::move(options.identity), options.token, std::move(options.nonce)),
      reader_(kMaxBytesBeforeAuth),
      output_(handshake_.hello()) {}

void ClientSession::receive(std::string_view bytes) {
  while (const std::optional<Frame> frame = reader_.read(bytes)) {
    read_frame(*frame);
  }
}

void ClientSession::sent(std::size_t nbytes) {
  num_sent_ += nbytes;
  if (num_sent_ == output_.size()) {
    std::string().swap(output_);
    num_sent_ = 0;
  }
}

void ClientSession::read_frame(const Frame& frame) {
  if (frame.type == FrameType::Refused && state_ < State::Open) {
    handshake_.throw_refusal(frame);
  }
  if (state_ == State::Greeting) {
    output_ += handshake_.answer(frame);
    const SessionKeys keys = handshake_.keys();
    sealer_.emplace(keys.from_client);
    opener_.emplace(keys.from_server);
    state_ = State::Proving;
    reader_.set_max_frame(kMaxFrame);
  } else {
    read_sealed(frame);
  }
}

void ClientSession::read_sealed(const Frame& frame) {
  const std::string_view body = opener_->open(frame);
  if (state_ == State::Proving && frame.type == FrameType::Welcome) {
    state_ = State::Open;
  } else if (state_ == State::Open && frame.type == FrameType::Reply) {
    Reply reply = decode_reply(body);
    const auto found = requests_.find(reply.id);
    if (found != requests_.end()) {
      found->second = std::move(reply);
    }
  } else if (state_ == State::Open && frame.type == FrameType::Failure) {
    failure_ = printable(body);
  } else if (state_ == State::Open && frame.type == FrameType::Farewell) {
    state_ = State::Left;
  } else {
    fail<ProtocolError>("store: the store must not send a frame of type {} now",
                        static_cast<int>(frame.type));
  }
}

std::uint64_t ClientSession::request(Request request) {
  request.id = ++last_id_;
  output_ += sealer_->seal(request.type, encode_request(request));
  requests_.emplace(request.id, std::nullopt);
  return request.id;
}

void ClientSession::cancel(std::uint64_t id) {
  output_ +=
      sealer_->seal(FrameType::Cancel, encode_request({.type = FrameType::Cancel, .id = id}));
}

bool ClientSession::has_reply(std::uint64_t id) const {
  const auto found = requests_.find(id);
  return found != requests_.end() && found->second;
}

std::optional<Reply> ClientSession::take_reply(std::uint64_t id) {
  if (!has_reply(id)) {
    return std::nullopt;
  }
  return std::move(requests_.extract(id).mapped());
}

void ClientSession::forget(std::uint64_t id) {
  requests_.erase(id);
}

}  // namespace fsdptrain::comm::store
