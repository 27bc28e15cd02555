#pragma once

#include <cstddef>
#include <set>
#include <tuple>
#include <vector>

namespace fsdptrain::testing {

// Rows of one level for each factor, of which there are levels[factor], such that every two levels
// of two factors are together in some row. Greedy; the same arguments give the same rows.
class CoveringArray {
 public:
  using Row = std::vector<int>;

  explicit CoveringArray(std::vector<int> levels) : levels_(std::move(levels)) {
    for (std::size_t a = 0; a < levels_.size(); ++a) {
      for (std::size_t b = a + 1; b < levels_.size(); ++b) {
        for (int i = 0; i < levels_[a]; ++i) {
          for (int j = 0; j < levels_[b]; ++j) {
            open_.insert({a, i, b, j});
          }
        }
      }
    }
    while (!open_.empty()) {
      add_row();
    }
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  // Two factors, each with a level.
  using Pair = std::tuple<std::size_t, int, std::size_t, int>;

  static Pair pair_of(std::size_t a, int i, std::size_t b, int j) {
    return a < b ? Pair{a, i, b, j} : Pair{b, j, a, i};
  }

  void add_row() {
    Row row(levels_.size(), -1);
    const auto [a, i, b, j] = *open_.begin();
    row[a] = i;
    row[b] = j;
    for (std::size_t factor = 0; factor < levels_.size(); ++factor) {
      if (row[factor] < 0) {
        row[factor] = best_level(row, factor);
      }
    }
    for (std::size_t x = 0; x < row.size(); ++x) {
      for (std::size_t y = x + 1; y < row.size(); ++y) {
        open_.erase({x, row[x], y, row[y]});
      }
    }
    rows_.push_back(row);
  }

  // That with most open pairs; among equals, levels take turns.
  int best_level(const Row& row, std::size_t factor) const {
    int best = 0;
    int most = -1;
    for (int k = 0; k < levels_[factor]; ++k) {
      const int level = (k + static_cast<int>(rows_.size())) % levels_[factor];
      int count = 0;
      for (std::size_t other = 0; other < row.size(); ++other) {
        if (row[other] >= 0 && other != factor) {
          count += open_.contains(pair_of(factor, level, other, row[other])) ? 1 : 0;
        }
      }
      if (count > most) {
        most = count;
        best = level;
      }
    }
    return best;
  }

  std::vector<int> levels_;
  std::set<Pair> open_;
  std::vector<Row> rows_;
};

}  // namespace fsdptrain::testing
