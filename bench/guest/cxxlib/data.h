// Data formats: CSV, INI, JSON, URLs, and encodings of bytes.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace toolbox
{

using CsvRow = std::vector<std::string>;
std::vector<CsvRow> read_csv(std::istream &in);
void write_csv(std::ostream &out, const std::vector<CsvRow> &rows);

// [section] and key = value; ; and # begin comments. Errors are thrown with their line.
class Ini
{
      public:
	static Ini parse(std::istream &in);
	std::optional<std::string> get(const std::string &section, const std::string &key) const;
	template <typename T>
	std::optional<T> get_as(const std::string &section, const std::string &key) const;
	std::vector<std::string> sections() const;

      private:
	std::map<std::string, std::map<std::string, std::string>> values_;
};

struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::map<std::string, Json>;

struct Json {
	std::variant<std::nullptr_t, bool, double, std::string, JsonArray, JsonObject> value;

	static Json parse(std::string_view text);
	std::string dump() const;
	std::size_t depth() const;
	// The value at a path such as "a/0/b", or nullptr.
	const Json *find(std::string_view path) const;
};
bool operator==(const Json &a, const Json &b);

struct Url {
	std::string scheme, host, path, fragment;
	std::optional<std::uint16_t> port;
	std::multimap<std::string, std::string> query;

	static std::optional<Url> parse(const std::string &text);
	std::string str() const;
};

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);
std::string to_hex(std::string_view bytes);
std::uint32_t crc32(std::string_view bytes);

// Huffman coding: the coded bits as bytes, with the table of symbols in front.
std::string huffman_encode(std::string_view bytes);
std::string huffman_decode(std::string_view coded);

} // namespace toolbox
