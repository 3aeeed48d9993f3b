#include "data.h"
#include <cctype>
#include <charconv>
#include <iomanip>
#include <regex>
#include <sstream>
#include <utility>

namespace toolbox
{

namespace
{

std::string percent_decode(std::string_view text)
{
	std::string out;
	for (std::size_t i = 0; i < text.size(); i++) {
		unsigned byte;
		if (text[i] == '%' && i + 2 < text.size() &&
		    std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ec == std::errc()) {
			out += char(byte);
			i += 2;
		} else {
			out += text[i] == '+' ? ' ' : text[i];
		}
	}
	return out;
}

std::string percent_encode(std::string_view text)
{
	std::ostringstream out;
	out << std::hex << std::uppercase << std::setfill('0');
	for (unsigned char c : text) {
		if (std::isalnum(c) ||
		    std::string_view("-._~/").find(char(c)) != std::string_view::npos)
			out << char(c);
		else
			out << '%' << std::setw(2) << unsigned(c);
	}
	return out.str();
}

} // namespace

std::optional<Url> Url::parse(const std::string &text)
{
	static const std::regex form(
		R"(([a-z][a-z0-9+.-]*)://([^/:?#]+)(?::(\d{1,5}))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?)",
		std::regex::icase);
	static const std::regex pair(R"(([^=&]+)(?:=([^&]*))?)");
	std::smatch match;
	if (!std::regex_match(text, match, form))
		return std::nullopt;
	Url url;
	url.scheme = match[1];
	url.host = match[2];
	url.path = percent_decode(match[4].str());
	url.fragment = match[6];
	if (match[3].matched) {
		auto port = std::stoul(match[3]);
		if (port > 65535)
			return std::nullopt;
		url.port = std::uint16_t(port);
	}
	const std::string query = match[5];
	for (std::sregex_iterator it(query.begin(), query.end(), pair), end; it != end; ++it)
		url.query.emplace(percent_decode((*it)[1].str()), percent_decode((*it)[2].str()));
	return url;
}

std::string Url::str() const
{
	std::ostringstream out;
	out << scheme << "://" << host;
	if (port)
		out << ':' << *port;
	out << percent_encode(path);
	char separator = '?';
	for (const auto &[name, value] : query)
		out << std::exchange(separator, '&') << percent_encode(name) << '='
		    << percent_encode(value);
	if (!fragment.empty())
		out << '#' << fragment;
	return out.str();
}

} // namespace toolbox
