#pragma once

#include "comm/clock.h"
#include "comm/gloo/rendezvous.h"
#include "comm/store/client.h"

namespace fsdptrain::comm {

// Ranks that find each other through the store of their job, which lets no rank write another's
// address. `set_timeout` is for each address that this rank leaves there. Errors are those of the
// store: PeerError as soon as a rank has failed, for ranks that wait too. `store` must outlive it
// and its copies.
Rendezvous store_rendezvous(Store& store, Nanoseconds set_timeout);

}  // namespace fsdptrain::comm
