#pragma once

#include <array>
#include <cstddef>
#include <string_view>

// What reports, timelines and errors call the kernel of an elementwise formula.
namespace fsdptrain::kernels::cuda {

// The name of a type, without the namespaces around it: "AddScaled".
template <class T>
constexpr std::string_view type_name() {
  // "... type_name() [with T = fsdptrain::kernels::AddScaled; ...]", or "T=..." and "]".
  const std::string_view text = __PRETTY_FUNCTION__;
  const std::size_t equals = text.find('=', text.find("T"));
  const std::size_t end = text.find_first_of(";]", equals);
  const std::size_t begin = text.find_last_of(":= ", end) + 1;
  return text.substr(begin, end - begin);
}

// That name as ops are called, for as long as the program runs: "add_scaled".
template <class Tag>
struct TagName {
  static constexpr std::array<char, 48> kText = [] {
    std::array<char, 48> text{};
    std::size_t size = 0;
    for (const char letter : type_name<Tag>()) {
      const bool is_capital = 'A' <= letter && letter <= 'Z';
      if (is_capital && size > 0) {
        text[size++] = '_';
      }
      text[size++] = is_capital ? static_cast<char>(letter - 'A' + 'a') : letter;
    }
    return text;
  }();
};

template <class Tag>
constexpr const char* tag_name() {
  return TagName<Tag>::kText.data();
}

}  // namespace fsdptrain::kernels::cuda
