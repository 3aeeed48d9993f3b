#include "data.h"
#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>
#include <utility>

namespace toolbox
{

namespace
{

template <typename... F> struct overloaded : F... {
	using F::operator()...;
};
template <typename... F> overloaded(F...) -> overloaded<F...>;

void dump_string(std::ostream &out, const std::string &text)
{
	out << '"';
	for (char c : text) {
		switch (c) {
		case '\n': out << "\\n"; break;
		case '\t': out << "\\t"; break;
		case '\r': out << "\\r"; break;
		case '"':
		case '\\': out << '\\' << c; break;
		default: out << c;
		}
	}
	out << '"';
}

void dump_to(std::ostream &out, const Json &json)
{
	std::visit(overloaded{
			   [&](std::nullptr_t) { out << "null"; },
			   [&](bool b) { out << std::boolalpha << b; },
			   [&](double d) { out << std::setprecision(15) << d; },
			   [&](const std::string &s) { dump_string(out, s); },
			   [&](const JsonArray &elements) {
				   const char *separator = "[";
				   for (const auto &element : elements) {
					   out << std::exchange(separator, ",");
					   dump_to(out, element);
				   }
				   out << (elements.empty() ? "[]" : "]");
			   },
			   [&](const JsonObject &members) {
				   const char *separator = "{";
				   for (const auto &[name, member] : members) {
					   out << std::exchange(separator, ",");
					   dump_string(out, name);
					   out << ':';
					   dump_to(out, member);
				   }
				   out << (members.empty() ? "{}" : "}");
			   },
		   },
		   json.value);
}

} // namespace

std::string Json::dump() const
{
	std::ostringstream out;
	dump_to(out, *this);
	return out.str();
}

std::size_t Json::depth() const
{
	std::size_t below = 0;
	if (auto elements = std::get_if<JsonArray>(&value))
		for (const auto &element : *elements)
			below = std::max(below, element.depth());
	if (auto members = std::get_if<JsonObject>(&value))
		for (const auto &entry : *members)
			below = std::max(below, entry.second.depth());
	return below + 1;
}

const Json *Json::find(std::string_view path) const
{
	if (path.empty())
		return this;
	auto slash = path.find('/');
	auto name = path.substr(0, slash);
	auto rest = slash == path.npos ? std::string_view() : path.substr(slash + 1);
	if (auto members = std::get_if<JsonObject>(&value)) {
		auto member = members->find(std::string(name));
		return member == members->end() ? nullptr : member->second.find(rest);
	}
	if (auto elements = std::get_if<JsonArray>(&value)) {
		std::size_t index;
		auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
		if (error == std::errc() && end == name.data() + name.size() &&
		    index < elements->size())
			return (*elements)[index].find(rest);
	}
	return nullptr;
}

bool operator==(const Json &a, const Json &b)
{
	return a.value == b.value;
}

} // namespace toolbox
