#include "data.h"
#include <algorithm>
#include <array>
#include <iomanip>
#include <numeric>
#include <sstream>

namespace toolbox
{

namespace
{

constexpr std::string_view alphabet =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> make_values()
{
	std::array<std::int8_t, 256> values{};
	for (std::size_t i = 0; i < values.size(); i++)
		values[i] = -1;
	for (std::size_t i = 0; i < alphabet.size(); i++)
		values[static_cast<unsigned char>(alphabet[i])] = std::int8_t(i);
	return values;
}
constexpr auto values = make_values();
static_assert(values['A'] == 0 && values['/'] == 63);

constexpr std::array<std::uint32_t, 256> make_crc_table()
{
	std::array<std::uint32_t, 256> table{};
	for (std::uint32_t i = 0; i < 256; i++) {
		std::uint32_t crc = i;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? 0xedb88320u ^ (crc >> 1) : crc >> 1;
		table[i] = crc;
	}
	return table;
}
constexpr auto crc_table = make_crc_table();

} // namespace

std::string to_base64(std::string_view bytes)
{
	std::string out;
	out.reserve((bytes.size() + 2) / 3 * 4);
	for (std::size_t at = 0; at < bytes.size(); at += 3) {
		auto group = bytes.substr(at, 3);
		std::uint32_t bits = 0;
		for (std::size_t i = 0; i < 3; i++)
			bits = bits << 8 |
			       (i < group.size() ? static_cast<unsigned char>(group[i]) : 0u);
		for (std::size_t i = 0; i < 4; i++)
			out += i <= group.size() ? alphabet[bits >> (18 - 6 * i) & 63] : '=';
	}
	return out;
}

std::optional<std::string> from_base64(std::string_view text)
{
	if (text.size() % 4)
		return std::nullopt;
	while (!text.empty() && text.back() == '=')
		text.remove_suffix(1);
	std::string out;
	std::uint32_t bits = 0;
	int count = 0;
	for (unsigned char c : text) {
		if (values[c] < 0)
			return std::nullopt;
		bits = bits << 6 | std::uint32_t(values[c]);
		count += 6;
		if (count >= 8)
			out += char(bits >> (count -= 8) & 0xff);
	}
	return out;
}

std::string to_hex(std::string_view bytes)
{
	std::ostringstream out;
	out << std::hex << std::setfill('0');
	for (unsigned char c : bytes)
		out << std::setw(2) << unsigned(c);
	return out.str();
}

std::uint32_t crc32(std::string_view bytes)
{
	return ~std::accumulate(bytes.begin(), bytes.end(), ~std::uint32_t(0),
				[](std::uint32_t crc, unsigned char c) {
					return crc_table[(crc ^ c) & 0xff] ^ (crc >> 8);
				});
}

} // namespace toolbox
