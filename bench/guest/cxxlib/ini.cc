#include "data.h"
#include <algorithm>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace toolbox
{

Ini Ini::parse(std::istream &in)
{
	static const std::regex blank(R"(\s*([;#].*)?)");
	static const std::regex section(R"(\s*\[\s*([^\]]+?)\s*\]\s*([;#].*)?)");
	static const std::regex setting(R"(\s*([\w.-]+)\s*=\s*(.*?)\s*)");
	Ini ini;
	std::string line, current;
	for (int number = 1; std::getline(in, line); number++) {
		std::smatch match;
		if (std::regex_match(line, blank))
			continue;
		if (std::regex_match(line, match, section)) {
			current = match[1];
			ini.values_.try_emplace(current);
		} else if (std::regex_match(line, match, setting)) {
			ini.values_[current].insert_or_assign(match[1], match[2]);
		} else {
			std::ostringstream what;
			what << "line " << number << ": not a setting: " << line;
			throw std::runtime_error(what.str());
		}
	}
	return ini;
}

std::optional<std::string> Ini::get(const std::string &section, const std::string &key) const
{
	auto found = values_.find(section);
	if (found == values_.end())
		return std::nullopt;
	auto value = found->second.find(key);
	return value == found->second.end() ? std::nullopt : std::make_optional(value->second);
}

template <typename T>
std::optional<T> Ini::get_as(const std::string &section, const std::string &key) const
{
	auto text = get(section, key);
	if (!text)
		return std::nullopt;
	std::istringstream in(*text);
	T value{};
	if constexpr (std::is_same_v<T, bool>)
		in >> std::boolalpha >> value;
	else
		in >> value;
	if (!in || !(in >> std::ws).eof())
		return std::nullopt;
	return value;
}
template std::optional<int> Ini::get_as<int>(const std::string &, const std::string &) const;
template std::optional<double> Ini::get_as<double>(const std::string &, const std::string &) const;
template std::optional<bool> Ini::get_as<bool>(const std::string &, const std::string &) const;

std::vector<std::string> Ini::sections() const
{
	std::vector<std::string> names;
	std::transform(values_.begin(), values_.end(), std::back_inserter(names),
		       [](const auto &entry) { return entry.first; });
	return names;
}

} // namespace toolbox
