#pragma once

#include <nlohmann/json.hpp>
#include <span>

namespace fsdptrain::checkpoint {

// State of a program that is no tensor of its model, such as a position in data: small, as JSON.
class Stateful {
 public:
  // Replicated: every rank has the same, which is compared when it is saved. PerRank: each has its
  // own.
  enum class Kind { Replicated, PerRank };

  Stateful() = default;
  Stateful(const Stateful&) = delete;
  Stateful& operator=(const Stateful&) = delete;
  virtual ~Stateful() = default;

  virtual Kind kind() const { return Kind::Replicated; }
  // By the thread that saves, at the step that is saved.
  virtual nlohmann::json state() const = 0;
  // What state() gave, on this rank where it is per rank. May throw for what it does not
  // understand; then loading fails on all ranks.
  virtual void load(const nlohmann::json& state) = 0;
  // Per rank, at another number of ranks: what all ranks had. Refuses with a ConfigError, unless it
  // is overridden.
  virtual void merge(std::span<const nlohmann::json> states, int rank, int num_ranks);
};

}  // namespace fsdptrain::checkpoint
