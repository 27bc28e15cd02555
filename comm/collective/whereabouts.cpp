#include "comm/collective/whereabouts.h"

#include <fmt/format.h>
#include <string_view>

namespace fsdptrain::comm {
namespace {

std::string describe(const Position& position, Nanoseconds now) {
  const std::string since = to_string(now - Nanoseconds{position.since});
  switch (position.progress) {
    case Progress::Idle:
      return position.since == 0 ? "has issued nothing yet"
                                 : fmt::format("ended {} {} ago", to_string(position.frame), since);
    case Progress::Posted:
      return fmt::format("issued {} {} ago and does not wait for it", to_string(position.frame),
                         since);
    case Progress::Waiting:
      return fmt::format(
          "waits in {} since {}{}", to_string(position.frame), since,
          position.waits_for < 0 ? "" : fmt::format(", for rank {}", position.waits_for));
  }
  return "is in no known state";
}

}  // namespace

std::string describe_whereabouts(Link& link, Nanoseconds now) {
  std::string text;
  for (int rank = 0; rank < link.size(); ++rank) {
    const Presence presence = link.presence(rank);
    const std::string_view gone = presence == Presence::Dead   ? "(dead) "
                                  : presence == Presence::Left ? "(left) "
                                                               : "";
    text += fmt::format("{}  rank {} {}{}", rank == 0 ? "" : "\n", rank, gone,
                        describe(link.position(rank), now));
  }
  return text;
}

}  // namespace fsdptrain::comm
