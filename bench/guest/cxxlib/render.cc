#include "text.h"
#include <algorithm>
#include <cctype>
#include <functional>
#include <regex>
#include <stdexcept>

namespace toolbox
{

namespace
{

using Filter = std::function<std::string(std::string)>;

const std::map<std::string, Filter> &filters()
{
	static const std::map<std::string, Filter> table{
		{ "upper",
		  [](std::string s) {
			  std::transform(s.begin(), s.end(), s.begin(),
					 [](unsigned char c) { return char(std::toupper(c)); });
			  return s;
		  } },
		{ "lower", lower },
		{ "trim", [](std::string s) { return std::string(trim(s)); } },
		{ "reverse", [](std::string s) { return std::string(s.rbegin(), s.rend()); } },
		{ "quote",
		  [](std::string s) {
			  return '"' + replace_all(std::move(s), "\"", "\\\"") + '"';
		  } },
	};
	return table;
}

std::string apply_filters(const std::string &chain, std::string value)
{
	for (const auto &name : split(chain, '|')) {
		if (name.empty())
			continue;
		auto filter = filters().find(name);
		if (filter == filters().end())
			throw std::out_of_range("no filter " + name);
		value = filter->second(std::move(value));
	}
	return value;
}

} // namespace

std::string render(const std::string &pattern, const std::map<std::string, std::string> &values)
{
	static const std::regex field(R"(\{\{\s*(\w+)\s*(?::([^|}]*))?((?:\|\w+)*)\s*\}\})");
	std::string out;
	auto last = pattern.begin();
	for (std::sregex_iterator it(pattern.begin(), pattern.end(), field), end; it != end; ++it) {
		const auto &match = *it;
		auto value = values.find(match[1]);
		out.append(last, match[0].first);
		last = match[0].second;
		if (value == values.end() && !match[2].matched)
			throw std::out_of_range("no value for " + match[1].str());
		out += apply_filters(match[3],
				     value == values.end() ? match[2].str() : value->second);
	}
	return out.append(last, pattern.end());
}

} // namespace toolbox
