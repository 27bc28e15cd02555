#include "checkpoint/safetensors/file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/safetensors/dtype_names.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/quoted.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

namespace fs = std::filesystem;

// A file system of 64 KiB over `folder`, where the user may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& folder)
      : folder_(folder), mounted_(::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") == 0) {}
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) {
      ::umount(folder_.c_str());
    }
  }

  bool mounted() const { return mounted_; }

 private:
  fs::path folder_;
  bool mounted_;
};

std::string little_endian(std::uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

// A whole file: header length, header, data.
std::string file_bytes(std::string_view header, std::string_view data = "") {
  return little_endian(header.size()) + std::string(header) + std::string(data);
}

std::string text_of(const SafetensorsReader& reader, std::string_view name) {
  const TensorEntry& entry = reader.find(name);
  std::string bytes(entry.nbytes(), '?');
  reader.read(entry, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Opening a file of these bytes must fail, naming the file and `message`.
void check_refused(std::string_view bytes, const char* message) {
  CAPTURE(message);
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  write_file(path, bytes);
  CHECK_THROWS_WITH_AS(SafetensorsReader{path}, doctest::Contains(message), DataError);
  CHECK_THROWS_WITH_AS(SafetensorsReader{path}, doctest::Contains("model.safetensors: "),
                       DataError);
}

void check_header_refused(std::string_view header, std::string_view data, const char* message) {
  CAPTURE(header);
  check_refused(file_bytes(header, data), message);
}

// The same for a file whose only tensor is "a" with these fields and 4 bytes of data.
void check_tensor_refused(const std::string& fields, const char* message) {
  check_header_refused(R"({"a":{)" + fields + "}}", "abcd", message);
}

constexpr const char* kTwoTensors = R"({"__metadata__":{"format":"pt"},)"
                                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},)"
                                    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";

}  // namespace

TEST_SUITE("checkpoint/safetensors reader") {
  TEST_CASE("a file of literal bytes gives metadata, entries in the order of bytes, and bytes") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_file(path, file_bytes(kTwoTensors, "wxyzuv"));
    const SafetensorsReader reader(path);
    CHECK(reader.path() == path);
    CHECK(reader.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    REQUIRE(reader.entries().size() == 2);
    CHECK(reader.entries()[0].name == "a");
    CHECK(reader.entries()[0].dtype == DType::Float32);
    CHECK(reader.entries()[0].shape == Shape{1});
    CHECK(reader.entries()[1].name == "b");
    CHECK(reader.entries()[1].begin == 4);
    CHECK(reader.entries()[1].end == 6);
    CHECK(text_of(reader, "a") == "wxyz");
    CHECK(text_of(reader, "b") == "uv");
  }

  TEST_CASE("every dtype has its name in the file") {
    CHECK(safetensors_name_of(DType::Float64) == "F64");
    CHECK(safetensors_name_of(DType::Float32) == "F32");
    CHECK(safetensors_name_of(DType::BFloat16) == "BF16");
    CHECK(safetensors_name_of(DType::Float16) == "F16");
    CHECK(safetensors_name_of(DType::Int64) == "I64");
    CHECK(safetensors_name_of(DType::Int32) == "I32");
    CHECK(safetensors_name_of(DType::UInt16) == "U16");
    CHECK(safetensors_name_of(DType::UInt8) == "U8");
  }

  TEST_CASE("a file may hold no tensor, a scalar, and tensors without elements") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_file(path, file_bytes("{}"));
    CHECK(SafetensorsReader(path).entries().empty());
    write_file(path, file_bytes(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                R"("z":{"dtype":"F64","shape":[3,0],"data_offsets":[4,4]},)"
                                R"("e":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                "abcd"));
    const SafetensorsReader reader(path);
    CHECK(reader.find("s").shape == Shape{});
    CHECK(text_of(reader, "s") == "abcd");
    CHECK(reader.find("z").shape == Shape{3, 0});
    CHECK(text_of(reader, "z").empty());
    CHECK(text_of(reader, "e").empty());
  }

  TEST_CASE("what is no regular file is refused") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    CHECK_THROWS_WITH_AS(SafetensorsReader{path},
                         doctest::Contains("model.safetensors: there is no such file"), DataError);
    CHECK_THROWS_WITH_AS(SafetensorsReader{folder.path()},
                         doctest::Contains("must be a file, got a folder"), DataError);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(SafetensorsReader{path},
                         doctest::Contains("must be a regular file, got a pipe or device"),
                         DataError);
  }

  TEST_CASE("a link to a file is followed") {
    const TemporaryFolder folder;
    write_file(folder.path() / "blob", file_bytes(kTwoTensors, "wxyzuv"));
    fs::create_symlink("blob", folder.path() / "model.safetensors");
    CHECK(text_of(SafetensorsReader(folder.path() / "model.safetensors"), "b") == "uv");
  }

  TEST_CASE("a length that is no header's is refused before anything is allocated") {
    for (std::size_t size = 0; size < 8; ++size) {
      CAPTURE(size);
      check_refused(std::string(size, '\1'), "begins with an 8-byte length, got");
    }
    check_refused(little_endian(0) + "{}", "the header is empty");
    check_refused(little_endian(3) + "{}",
                  "the header has 3 bytes, but the file has 2 bytes after the length");
    check_refused(little_endian(100'000'001) + "{}",
                  "a header has at most 100000000 bytes, got 100000001");
    check_refused(little_endian(std::uint64_t{1} << 63) + "{}", "got 9223372036854775808");
    check_refused(little_endian(std::numeric_limits<std::uint64_t>::max()) + "{}",
                  "got 18446744073709551615");
    // 2 written in the other byte order.
    check_refused(std::string("\0\0\0\0\0\0\0\2{}", 10), "got 144115188075855872");
  }

  TEST_CASE("a header that is no JSON object is refused") {
    check_header_refused("[]", "", "the header must begin with {, got \"[\"");
    check_header_refused(" {}", "", "the header must begin with {, got \" \"");
    check_header_refused("\xef\xbb\xbf{}", "", "the header must begin with {, got \"");
    check_header_refused(R"({"a")", "", "the header is not JSON at its byte 5");
    check_header_refused("{}x", "", "the header is not JSON at its byte 3");
    check_header_refused("{}{}", "", "the header is not JSON at its byte 3");
    check_header_refused("{\"\xff\":{}}", "", "invalid string: ill-formed UTF-8 byte");
    check_header_refused("{\"a\nb\":{}}", "", "must be escaped");
    check_header_refused(std::string_view("{}\0 ", 4), "",
                         "the header has a zero byte at its byte 2");
    check_header_refused(R"({"a":{"shape":[1e400]}})", "", "the header is not JSON");
  }

  TEST_CASE("a value of the wrong kind is refused where it stands") {
    check_header_refused(R"({"a":1})", "", "tensor \"a\" must be an object, got 1");
    check_header_refused(R"({"a":[]})", "", "tensor \"a\" must be an object, got an array");
    check_header_refused(R"({"a":null})", "", "tensor \"a\" must be an object, got null");
    check_header_refused(R"({"__metadata__":"x"})", "",
                         "tensor \"__metadata__\" must be an object, got \"x\"");
    check_header_refused(R"({"__metadata__":{"k":1}})", "",
                         "__metadata__ must map strings to strings, got 1 for \"k\"");
    check_header_refused(R"({"__metadata__":{"k":{}}})", "", "got an object for \"k\"");
    check_tensor_refused(R"("dtype":true)", "dtype must be a string, got true");
    check_tensor_refused(R"("dtype":["F32"])", "dtype must be a string, got an array");
    check_tensor_refused(R"("shape":"1")", "shape must be an array, got \"1\"");
    check_tensor_refused(R"("shape":{})", "shape must be an array, got an object");
    check_tensor_refused(R"("shape":[1.0])", "shape must hold integers >= 0, got 1.0");
    check_tensor_refused(R"("shape":[-1])", "shape must hold integers >= 0, got -1");
    check_tensor_refused(R"("shape":["1"])", "shape must hold integers >= 0, got \"1\"");
    check_tensor_refused(R"("shape":[18446744073709551616])",
                         "shape must hold integers >= 0, got 18446744073709551616");
    check_tensor_refused(R"("data_offsets":4)", "data_offsets must be an array, got 4");
    check_tensor_refused(R"("data_offsets":[-0,4])", "data_offsets must hold integers >= 0");
    check_tensor_refused(R"("data_offsets":[0,null])",
                         "data_offsets must hold integers >= 0, got null");
  }

  TEST_CASE("deep nesting is refused at once") {
    check_header_refused(R"({"a":{"shape":)" + std::string(100'000, '['), "",
                         "shape must hold integers >= 0, got an array");
  }

  TEST_CASE("names and fields that come twice are refused") {
    const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    check_header_refused("{" + a + "," + a + "}", "", "the header names \"a\" twice");
    check_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "",
                         "the header names \"__metadata__\" twice");
    check_header_refused(R"({"__metadata__":{"k":"1","k":"2"}})", "",
                         "__metadata__ names \"k\" twice");
    check_tensor_refused(R"("dtype":"U8","dtype":"U8")", "dtype is given twice");
    check_tensor_refused(R"("shape":[4],"shape":[4])", "shape is given twice");
    check_tensor_refused(R"("data_offsets":[0,4],"data_offsets":[0,4])",
                         "data_offsets is given twice");
  }

  TEST_CASE("fields that are missing or unknown are refused") {
    check_tensor_refused(R"("shape":[1],"data_offsets":[0,4])", "tensor \"a\": dtype is missing");
    check_tensor_refused(R"("dtype":"F32","data_offsets":[0,4])", "tensor \"a\": shape is missing");
    check_tensor_refused(R"("dtype":"F32","shape":[1])", "tensor \"a\": data_offsets is missing");
    check_tensor_refused(R"("layout":"x")",
                         "fields are dtype, shape and data_offsets, got \"layout\"");
    check_tensor_refused(R"("dtype":"F32","shape":[1],"data_offsets":[4])",
                         "data_offsets must be [begin, end], got 1 numbers");
    check_tensor_refused(R"("dtype":"F32","shape":[1],"data_offsets":[0,2,4])",
                         "data_offsets must be [begin, end], got more than two numbers");
  }

  TEST_CASE("dtypes of the format that are not supported differ from dtypes that do not exist") {
    for (const std::string dtype :
         {"BOOL", "F4", "F6_E2M3", "F6_E3M2", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ",
          "F8_E5M2FNUZ", "I16", "U32", "C64", "U64"}) {
      const std::string message = "tensor \"a\": dtype " + dtype + " is not supported";
      check_tensor_refused(R"("dtype":")" + dtype + R"(","shape":[4],"data_offsets":[0,4])",
                           message.c_str());
    }
    check_tensor_refused(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])",
                         "tensor \"a\": dtype \"f32\" is not one of the format's");
  }

  TEST_CASE("sizes that do not fit 64 bits or 8 dimensions are refused") {
    check_tensor_refused(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4])",
                         "a tensor has at most 8 dimensions here, got more");
    check_tensor_refused(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4])",
                         "a size must be less than 2^63, got 9223372036854775808");
    check_tensor_refused(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4])",
                         "number of elements of [4294967296, 4294967296] overflows 64 bits");
    check_tensor_refused(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])",
                         "overflows 64 bits");
    check_tensor_refused(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0])",
                         "the bytes of float64 [4611686018427387904] overflow 64 bits");
  }

  TEST_CASE("offsets that do not fit the tensor are refused") {
    check_tensor_refused(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])",
                         "data_offsets must not go backwards, got [4, 0]");
    check_tensor_refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])",
                         "float32 [2] takes 8 bytes, but data_offsets [0, 4] span 4");
    check_tensor_refused(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])",
                         "float32 [0] takes 0 bytes, but data_offsets [0, 4] span 4");
    check_tensor_refused(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])",
                         "its bytes end at 8, but the file has 4 bytes of data: it is cut short");
  }

  TEST_CASE("holes, overlaps and bytes behind the last tensor are refused") {
    const auto two = [](const char* a, const char* b) {
      return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + a +
             R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
    };
    check_header_refused(two("[0,2]", "[3,5]"), "abcde",
                         "bytes 2 to 3 of the data belong to no tensor; \"b\" begins after them");
    check_header_refused(two("[1,3]", "[3,5]"), "abcde", "bytes 0 to 1 of the data belong to no");
    check_header_refused(two("[0,2]", "[1,3]"), "abc",
                         "tensor \"b\" begins at byte 1, inside \"a\"");
    check_header_refused(two("[0,2]", "[0,2]"), "ab",
                         "tensor \"b\" begins at byte 0, inside \"a\"");
    check_header_refused(two("[0,2]", "[2,4]"), "abcdPK",
                         "2 bytes follow the last tensor, which ends at byte 4 of the data");
    check_header_refused("{}", "PK", "2 bytes follow the last tensor, which ends at byte 0");
    check_header_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                         "abcd", "tensor \"z\" begins at byte 2, inside \"a\"");
  }

  TEST_CASE("a file cut short anywhere is refused") {
    const std::string whole = file_bytes(kTwoTensors, "wxyzuv");
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CAPTURE(size);
      write_file(path, whole.substr(0, size));
      CHECK_THROWS_AS(SafetensorsReader{path}, DataError);
    }
    write_file(path, whole);
    CHECK_NOTHROW(SafetensorsReader{path});
  }

  TEST_CASE("a file cut after it was opened is refused by the read that misses bytes") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_file(path, file_bytes(kTwoTensors, "wxyzuv"));
    const SafetensorsReader reader(path);
    fs::resize_file(path, fs::file_size(path) - 1);
    CHECK(text_of(reader, "a") == "wxyz");
    CHECK_THROWS_WITH_AS(
        text_of(reader, "b"),
        doctest::Contains("tensor \"b\": 2 bytes are asked for, got 1: the file was cut"),
        DataError);
  }

  TEST_CASE("a name that is not there is answered with the nearest names") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_file(path, file_bytes(R"({"wte":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                R"("wpe":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                R"("ln_f":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                R"("h.0":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"));
    const SafetensorsReader reader(path);
    CHECK(reader.contains("wte"));
    CHECK_FALSE(reader.contains("wqe"));
    CHECK_THROWS_WITH_AS(
        reader.find("wpee"),
        doctest::Contains(
            R"(model.safetensors: there is no tensor "wpee"; nearest of its 4 names: "wpe", "wte",)"),
        DataError);
  }

  TEST_CASE("a buffer of another size is refused") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_file(path, file_bytes(kTwoTensors, "wxyzuv"));
    const SafetensorsReader reader(path);
    std::array<std::byte, 3> out{};
    CHECK_THROWS_WITH_AS(reader.read(reader.find("a"), out),
                         doctest::Contains("tensor \"a\" has 4 bytes, got room for 3"), ShapeError);
  }
}

TEST_SUITE("checkpoint/safetensors writer") {
  TEST_CASE("the bytes of a file are frozen") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    SafetensorsWriter writer(path, {{"format", "pt"}, {"a\"b", "\n"}},
                             {{"b", DType::UInt8, Shape{2}}, {"a", DType::Float32, Shape{}}});
    writer.write("b", bytes_of("uv"));
    writer.write("a", bytes_of("wxyz"));
    writer.commit();
    const std::string header = R"({"__metadata__":{"a\"b":"\n","format":"pt"},)"
                               R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
    REQUIRE(header.size() % 8 == 4);
    CHECK(read_file(path) == file_bytes(header + "    ", "wxyzuv"));
    CHECK(folder.num_files() == 1);
  }

  TEST_CASE("what is written is read back, in every dtype and for odd shapes") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    const std::vector<TensorSpec> tensors = {{"u8", DType::UInt8, Shape{3, 5, 7}},
                                             {"f64", DType::Float64, Shape{1}},
                                             {"f32 empty", DType::Float32, Shape{0}},
                                             {"f32", DType::Float32, Shape{2, 2}},
                                             {"bf16", DType::BFloat16, Shape{}},
                                             {"f16", DType::Float16, Shape{13}},
                                             {"i64", DType::Int64, Shape{1, 1, 1, 1, 1, 1, 1, 2}},
                                             {"i32", DType::Int32, Shape{4, 0, 4}},
                                             {"", DType::UInt16, Shape{17}},
                                             {"\xc3\xa9/../\x01", DType::UInt8, Shape{1}}};
    SafetensorsWriter writer(path, {}, tensors);
    std::map<std::string, std::string> expected;
    for (const TensorEntry& entry : writer.entries()) {
      std::string bytes(entry.nbytes(), '\0');
      std::iota(bytes.begin(), bytes.end(), static_cast<char>(expected.size()));
      CHECK(entry.begin % size_of(entry.dtype) == 0);
      if (!bytes.empty()) {
        writer.write(entry.name, bytes_of(bytes));
      }
      expected[entry.name] = bytes;
    }
    writer.commit();
    const SafetensorsReader reader(path);
    CHECK(reader.metadata().empty());
    REQUIRE(reader.entries().size() == tensors.size());
    for (const TensorSpec& tensor : tensors) {
      CAPTURE(tensor.name);
      CHECK(reader.find(tensor.name).dtype == tensor.dtype);
      CHECK(reader.find(tensor.name).shape == tensor.shape);
      CHECK(text_of(reader, tensor.name) == expected.at(tensor.name));
    }
  }

  TEST_CASE("a file without tensors is valid") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    SafetensorsWriter(path, {}, {}).commit();
    CHECK(read_file(path) == file_bytes("{}      "));
    CHECK(SafetensorsReader(path).entries().empty());
  }

  TEST_CASE("nothing appears under the name before commit, and nothing stays without it") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    {
      SafetensorsWriter writer(path, {}, {{"a", DType::UInt8, Shape{4}}});
      SafetensorsWriter other(path, {}, {{"a", DType::UInt8, Shape{4}}});
      writer.write("a", bytes_of("abcd"));
      CHECK_FALSE(fs::exists(path));
      CHECK(folder.num_files() == 2);
    }
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("commit replaces an older file, and its open reader keeps the old bytes") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    const auto save = [&](std::string_view bytes) {
      SafetensorsWriter writer(path, {}, {{"a", DType::UInt8, Shape{4}}});
      writer.write("a", bytes_of(bytes));
      writer.commit();
    };
    save("1111");
    const SafetensorsReader reader(path);
    save("2222");
    CHECK(text_of(reader, "a") == "1111");
    CHECK(text_of(SafetensorsReader(path), "a") == "2222");
    CHECK(folder.num_files() == 1);
  }

  TEST_CASE("a wrong use of the writer is an error and leaves no file") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    const std::vector<TensorSpec> a = {{"a", DType::UInt8, Shape{4}}};
    {
      SafetensorsWriter writer(path, {}, a);
      CHECK_THROWS_WITH_AS(writer.write("b", bytes_of("abcd")),
                           doctest::Contains("there is no tensor \"b\""), DataError);
      CHECK_THROWS_WITH_AS(writer.write("a", bytes_of("abc")),
                           doctest::Contains("tensor \"a\" has 4 bytes, got 3"), ShapeError);
      CHECK_THROWS_WITH_AS(writer.commit(), doctest::Contains("tensor \"a\" has not been written"),
                           Error);
      writer.write("a", bytes_of("abcd"));
      CHECK_THROWS_WITH_AS(writer.write("a", bytes_of("abcd")),
                           doctest::Contains("tensor \"a\" is written twice"), Error);
    }
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("what no file can hold is refused and leaves no file") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    const std::vector<TensorSpec> a = {{"a", DType::UInt8, Shape{4}}};
    const auto check_ctor = [&](std::map<std::string, std::string> metadata,
                                const std::vector<TensorSpec>& tensors, const char* message) {
      CAPTURE(message);
      CHECK_THROWS_WITH_AS(SafetensorsWriter(path, metadata, tensors), doctest::Contains(message),
                           DataError);
    };
    check_ctor({}, {a[0], a[0]}, "two tensors are named \"a\"");
    check_ctor({}, {{"__metadata__", DType::UInt8, Shape{4}}},
               "__metadata__ cannot be a tensor's name");
    check_ctor({}, {{"\xff", DType::UInt8, Shape{4}}}, "names and metadata must be UTF-8");
    check_ctor({{"k", "\xff"}}, a, "names and metadata must be UTF-8");
    const Shape huge{std::int64_t{1} << 61};
    check_ctor({}, {{"a", DType::Float64, huge}}, "the bytes up to tensor \"a\" overflow 64 bits");
    check_ctor({}, {{"a", DType::Float32, huge}, {"b", DType::Float32, huge}},
               "the bytes up to tensor \"b\" overflow 64 bits");
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("a place that cannot be written is named with the cure") {
    const TemporaryFolder folder;
    CHECK_THROWS_WITH_AS(SafetensorsWriter(folder.path() / "none" / "m.safetensors", {}, {}),
                         doctest::Contains("create the folder first"), PathError);
    CHECK_THROWS_WITH_AS(SafetensorsWriter(folder.path(), {}, {}),
                         doctest::Contains("cannot write a file there: it is a folder"), PathError);
  }

  TEST_CASE("a full disk is an error with path, bytes, reason and cure, and leaves no file") {
    const TemporaryFolder folder;
    const SmallDisk disk(folder.path());
    if (!disk.mounted()) {
      MESSAGE("SKIPPED, nothing was tested: mounting a small file system needs root: "
              << std::strerror(errno));
      return;
    }
    const fs::path path = folder.path() / "model.safetensors";
    const std::string bytes(100'000, 'x');
    {
      SafetensorsWriter writer(path, {}, {{"a", DType::UInt8, Shape{100'000}}});
      CHECK_THROWS_WITH_AS(writer.write("a", bytes_of(bytes)),
                           doctest::Contains("No space left on device; free space there"), IoError);
      CHECK_THROWS_WITH_AS(writer.write("a", bytes_of(bytes)),
                           doctest::Contains("/model.safetensors: writing "), IoError);
      CHECK_THROWS_WITH_AS(writer.write("a", bytes_of(bytes)), doctest::Contains(" bytes at "),
                           IoError);
      CHECK_THROWS_AS(writer.commit(), Error);
    }
    CHECK(folder.num_files() == 0);
  }
}

}  // namespace fsdptrain::checkpoint
