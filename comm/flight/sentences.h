#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdptrain::comm {

// What is said of a rank. Of several ranks it is one sentence where only the times differ.
struct Sentence {
  std::string verb_of_one;
  std::string verb_of_many;
  std::string before;
  std::optional<double> seconds = std::nullopt;
  std::string after = {};
};

// Of several ranks: "  ranks 0-2 wait in all_gather seq 41 since 2.0-2.5 s".
class Sentences {
 public:
  void add(int rank, const Sentence& sentence);
  // A line for each, in the order in which they were first said.
  std::string text() const;

 private:
  struct Entry {
    Sentence sentence;
    std::vector<int> ranks;
    double least;
    double most;
  };

  std::vector<Entry> entries_;
};

}  // namespace fsdptrain::comm
