#include "text.h"
#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <sstream>

namespace toolbox
{

std::vector<std::string> split(std::string_view text, char separator)
{
	std::vector<std::string> parts;
	for (;;) {
		auto at = text.find(separator);
		parts.emplace_back(text.substr(0, at));
		if (at == std::string_view::npos)
			return parts;
		text.remove_prefix(at + 1);
	}
}

std::string join(const std::vector<std::string> &parts, std::string_view separator)
{
	if (parts.empty())
		return {};
	auto size = std::accumulate(
		parts.begin(), parts.end(), separator.size() * (parts.size() - 1),
		[](std::size_t sum, const auto &part) { return sum + part.size(); });
	std::string joined = parts.front();
	joined.reserve(size);
	std::for_each(std::next(parts.begin()), parts.end(), [&](const auto &part) {
		joined += separator;
		joined += part;
	});
	return joined;
}

std::string_view trim(std::string_view text)
{
	auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
	auto first = std::find_if_not(text.begin(), text.end(), blank);
	auto last =
		std::find_if_not(text.rbegin(), std::make_reverse_iterator(first), blank).base();
	return text.substr(std::size_t(first - text.begin()), std::size_t(last - first));
}

std::string lower(std::string text)
{
	std::transform(text.begin(), text.end(), text.begin(),
		       [](unsigned char c) { return char(std::tolower(c)); });
	return text;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to)
{
	if (from.empty())
		return text;
	for (auto at = text.find(from); at != std::string::npos;
	     at = text.find(from, at + to.size()))
		text.replace(at, from.size(), to);
	return text;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width)
{
	std::istringstream words{ std::string(text) };
	std::vector<std::string> lines;
	for (std::string word; words >> word;) {
		if (lines.empty() || lines.back().size() + 1 + word.size() > width)
			lines.push_back(std::move(word));
		else
			lines.back().append(1, ' ').append(word);
	}
	return lines;
}

} // namespace toolbox
