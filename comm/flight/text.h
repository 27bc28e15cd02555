#pragma once

#include <string>

#include "comm/flight/record.h"
#include "comm/tag_names.h"

// What a record says, in the words that errors have for operations. A number that this program has
// no word for is printed as it is.
namespace fsdptrain::comm {

// "all_gather seq 41"
std::string short_text(const FlightRecord& record);
// "all_gather seq 41 of group 'world' for h.3.attn.weight"; without a name it ends before "for".
std::string place_text(const FlightRecord& record, const TagNames& names);
// "(tag root 0 group 3 invocation 7 backward, bfloat16 x 1024, avg, root rank 2)"
std::string detail_text(const FlightRecord& record);
// "posted", "started", ...
std::string_view name_of(FlightState state);
// "", "float32", "dtype 77"
std::string dtype_text(const FlightRecord& record);
std::string op_text(const FlightRecord& record);
// Empty for a record that reduces nothing.
std::string reduce_op_text(const FlightRecord& record);
std::string tag_text(const FlightTag& tag);

}  // namespace fsdptrain::comm
