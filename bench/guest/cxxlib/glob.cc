#include "text.h"
#include <list>
#include <mutex>
#include <regex>
#include <stdexcept>

namespace toolbox
{

namespace
{

std::string escaped(char c)
{
	static const std::string_view special = R"(.^$|()[]{}*+?\)";
	return special.find(c) == std::string_view::npos ? std::string(1, c)
							 : std::string{ '\\', c };
}

// The class that begins at pattern[at] == '['; moves `at` to its end.
std::string character_class(std::string_view pattern, std::size_t &at)
{
	auto end = pattern.find(']', at + 2);
	if (end == std::string_view::npos)
		throw std::invalid_argument("unfinished [ in " + std::string(pattern));
	std::string body(pattern.substr(at + 1, end - at - 1));
	if (body.front() == '!')
		body.front() = '^';
	at = end;
	return '[' + body + ']';
}

std::string to_regex(std::string_view pattern)
{
	std::string out;
	int braces = 0;
	for (std::size_t at = 0; at < pattern.size(); at++) {
		char c = pattern[at];
		switch (c) {
		case '*': out += "[^/]*"; break;
		case '?': out += "[^/]"; break;
		case '[': out += character_class(pattern, at); break;
		case '{':
			braces++;
			out += "(?:";
			break;
		case '}':
			out += braces ? ")" : "\\}";
			braces -= braces > 0;
			break;
		case ',': out += braces ? "|" : ","; break;
		default: out += escaped(c);
		}
	}
	if (braces)
		throw std::invalid_argument("unfinished { in " + std::string(pattern));
	return out;
}

// The last few patterns, compiled: callers match many names against the same one.
class Cache
{
      public:
	std::regex get(std::string_view pattern)
	{
		std::lock_guard<std::mutex> guard(lock_);
		for (auto it = entries_.begin(); it != entries_.end(); ++it)
			if (it->first == pattern) {
				entries_.splice(entries_.begin(), entries_, it);
				return it->second;
			}
		entries_.emplace_front(pattern,
				       std::regex(to_regex(pattern), std::regex::optimize));
		if (entries_.size() > 8)
			entries_.pop_back();
		return entries_.front().second;
	}

      private:
	std::mutex lock_;
	std::list<std::pair<std::string, std::regex>> entries_;
};

} // namespace

bool glob_match(std::string_view pattern, std::string_view text)
{
	static Cache cache;
	return std::regex_match(text.begin(), text.end(), cache.get(pattern));
}

} // namespace toolbox
