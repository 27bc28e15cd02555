#include "tests/fakecuda/host_access.h"

#include <array>
#include <cstdio>
#include <fmt/format.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/fakecuda/machine.h"

namespace fsdptrain::fakecuda {
namespace {

struct sigaction& previous_action() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a signal has no argument.
  static struct sigaction action = {};
  return action;
}

const char* access_of(const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kWrite) != 0 ? "write" : "read";
#else
  static_cast<void>(context);
  return "access";
#endif
}

void on_fault(int signal, siginfo_t* fault, void* context) {
  const auto address = reinterpret_cast<Address>(fault->si_addr);
  const std::shared_ptr<Machine> held = machine();
  if (!held || !held->memory.is_ours(address)) {
    const struct sigaction& previous = previous_action();
    if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
      previous.sa_sigaction(signal, fault, context);
    } else {
      std::signal(signal, SIG_DFL);
    }
    return;
  }
  // The fault was in code of the host, not in an allocator: texts can be made here.
  const Allocation* found = held->memory.find(address);
  const std::uint32_t op = held->running_op;
  std::string text = fmt::format("fake CUDA: {} {} of ",
                                 op == 0 ? "host" : fmt::format("'{}'", held->accessors[op].name),
                                 access_of(context));
  if (found == nullptr) {
    text += "memory beside all allocations";
  } else {
    text += fmt::format("{} memory: byte {} of {}{}",
                        found->kind == MemoryKind::Device ? "device" : "pinned",
                        static_cast<std::ptrdiff_t>(address - found->begin), to_string(*found),
                        found->freed ? ", which was freed" : "");
  }
  text += "\n  at " + to_string(CallSite::here()) + "\n";
  std::fputs(text.c_str(), stderr);
  _exit(kHostAccessExit);
}

}  // namespace

HostAccessHandler::HostAccessHandler() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_action());
}

HostAccessHandler::~HostAccessHandler() {
  sigaction(SIGSEGV, &previous_action(), nullptr);
}

}  // namespace fsdptrain::fakecuda
