#include "text.h"
#include <algorithm>
#include <cctype>
#include <functional>
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
	std::string out;
	std::string_view rest = pattern;
	for (auto open = rest.find("{{"); open != rest.npos; open = rest.find("{{")) {
		auto close = rest.find("}}", open);
		if (close == rest.npos)
			throw std::invalid_argument("unfinished {{ in " + pattern);
		auto field = trim(rest.substr(open + 2, close - open - 2));
		out += rest.substr(0, open);
		rest.remove_prefix(close + 2);

		auto bar = std::min(field.find('|'), field.size());
		auto chain = field.substr(bar);
		field = field.substr(0, bar);
		auto colon = field.find(':');
		std::string name(trim(field.substr(0, colon)));
		auto value = values.find(name);
		if (value == values.end() && colon == field.npos)
			throw std::out_of_range("no value for " + name);
		out += apply_filters(std::string(chain),
				     value == values.end() ? std::string(field.substr(colon + 1))
							   : value->second);
	}
	return out += rest;
}

} // namespace toolbox
