#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "comm/store/server.h"
#include "comm/store/session.h"
#include "tests/support/sim_network.h"
#include "tests/support/store_token.h"

// A server and its clients as state machines, without any network in between.
namespace fsdptrain::testing {

inline comm::store::Secret job_token() {
  return comm::store::Secret::from_bytes(kStoreToken);
}

inline comm::store::Identity identity_of(int rank, int world_size = 4) {
  return {.job_id = std::string(kStoreJob), .rank = rank, .world_size = world_size};
}

class StoreJob {
 public:
  using Server = comm::store::Server;

  // World of four.
  StoreJob() : server({.job_id = "job", .token = job_token(), .world_size = 4}, clock) {}

  // A client of the job and its connection.
  struct Member {
    explicit Member(int rank) : session({.identity = identity_of(rank), .token = job_token()}) {}

    comm::store::ClientSession session;
    Server::PeerId peer = 0;
  };

  // A client that the server has taken in; rank 2 and 3 are left to the tests.
  std::unique_ptr<Member> join(int rank) {
    auto member = std::make_unique<Member>(rank);
    member->peer = server.connect().value();
    pump(*member);
    REQUIRE(member->session.is_open());
    return member;
  }

  // Moves bytes in both directions until nothing moves.
  void pump(Member& member) {
    while (!member.session.output().empty() || !server.output(member.peer).empty()) {
      const std::string up(member.session.output().substr(0, Server::kMaxReceive));
      if (!up.empty() && server.wants_input(member.peer)) {
        member.session.sent(up.size());
        server.receive(member.peer, up);
        check_memory();
      } else if (!up.empty() && server.output(member.peer).empty()) {
        return;
      }
      const std::string down(server.output(member.peer));
      server.sent(member.peer, down.size());
      member.session.receive(down);
    }
  }

  // The bytes come from `peer`, as far as the server listens to it. What it answers is thrown away.
  std::string send(Server::PeerId peer, std::string_view bytes) {
    std::string answer;
    while (!bytes.empty() && server.wants_input(peer)) {
      const std::string_view piece = bytes.substr(0, Server::kMaxReceive);
      server.receive(peer, piece);
      bytes.remove_prefix(piece.size());
      check_memory();
      answer += drain(peer);
    }
    return answer;
  }
  std::string drain(Server::PeerId peer) {
    std::string answer;
    while (!server.output(peer).empty()) {
      const std::string piece(server.output(peer));
      answer += piece;
      server.sent(peer, piece.size());
    }
    return answer;
  }

  // One request of a member, to its end; the reply if there is one.
  std::optional<comm::store::Reply> ask(Member& member, comm::store::Request request) {
    const std::uint64_t id = member.session.request(std::move(request));
    pump(member);
    return member.session.take_reply(id);
  }

  // The server closed it; afterwards it holds nothing of it, and 0 and 1 work as before.
  void check_refused(Server::PeerId peer, Member& zero, Member& one) {
    check_closed(peer);
    const std::string value = std::to_string(++num_checks_);
    const auto set =
        ask(zero, {.type = comm::store::FrameType::Set, .keys = {"k"}, .value = value});
    CHECK(set.has_value());
    const auto got = ask(one, {.type = comm::store::FrameType::Get, .keys = {"k"}});
    REQUIRE(got.has_value());
    CHECK(got->value == value);
    CHECK_FALSE(server.failure().has_value());
    CHECK(server.buffered_bytes() == 0);
  }
  // The server closed it; 0 and 1 are told why their rank failed, and stay connected.
  void check_failed(Server::PeerId peer, Member& zero, Member& one, const std::string& text) {
    check_closed(peer);
    for (Member* member : {&zero, &one}) {
      pump(*member);
      CHECK_FALSE(server.is_closed(member->peer));
      REQUIRE(member->session.failure().has_value());
      CHECK(member->session.failure()->find(text) != std::string::npos);
    }
    CHECK(server.buffered_bytes() == 0);
  }
  void check_closed(Server::PeerId peer) {
    drain(peer);
    REQUIRE(server.is_closed(peer));
    server.disconnect(peer);
    CHECK(server.ranks() == std::vector<int>{0, 1});
  }

  // Far above what a test lets pile up on purpose, far below what any hostile frame asks for.
  void check_memory() const { REQUIRE(server.buffered_bytes() < (std::size_t{1} << 20)); }

  SimClock clock;
  Server server;

 private:
  int num_checks_ = 0;
};

}  // namespace fsdptrain::testing
