#include "data.h"
#include <algorithm>
#include <charconv>
#include <cctype>
#include <sstream>
#include <stdexcept>

namespace toolbox
{

namespace
{

class Parser
{
      public:
	explicit Parser(std::string_view text) : text_(text)
	{
	}

	Json document()
	{
		Json json = value();
		skip_blanks();
		if (at_ != text_.size())
			fail("something follows the value");
		return json;
	}

      private:
	[[noreturn]] void fail(const char *why) const
	{
		auto line =
			1 + std::count(text_.begin(), text_.begin() + std::ptrdiff_t(at_), '\n');
		std::ostringstream what;
		what << "json, line " << line << ": " << why;
		throw std::runtime_error(what.str());
	}
	void skip_blanks()
	{
		while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])))
			at_++;
	}
	char peek()
	{
		skip_blanks();
		return at_ < text_.size() ? text_[at_] : '\0';
	}
	bool take(char c)
	{
		if (peek() != c)
			return false;
		at_++;
		return true;
	}
	bool take_word(std::string_view word)
	{
		if (text_.substr(at_, word.size()) != word)
			return false;
		at_ += word.size();
		return true;
	}

	Json value()
	{
		if (++depth_ > 200)
			fail("too deep");
		Json json;
		switch (peek()) {
		case '{': json.value = object(); break;
		case '[': json.value = array(); break;
		case '"': json.value = string(); break;
		default:
			if (take_word("null"))
				json.value = nullptr;
			else if (take_word("true"))
				json.value = true;
			else if (take_word("false"))
				json.value = false;
			else
				json.value = number();
		}
		depth_--;
		return json;
	}
	JsonObject object()
	{
		JsonObject members;
		take('{');
		if (take('}'))
			return members;
		do {
			if (peek() != '"')
				fail("no name of a member");
			auto name = string();
			if (!take(':'))
				fail("no colon");
			if (!members.emplace(std::move(name), value()).second)
				fail("a member is there twice");
		} while (take(','));
		if (!take('}'))
			fail("no end of an object");
		return members;
	}
	JsonArray array()
	{
		JsonArray elements;
		take('[');
		if (take(']'))
			return elements;
		do {
			elements.push_back(value());
		} while (take(','));
		if (!take(']'))
			fail("no end of an array");
		return elements;
	}
	std::string string()
	{
		std::string out;
		for (at_++; at_ < text_.size() && text_[at_] != '"'; at_++)
			out += text_[at_] == '\\' ? escape() : text_[at_];
		if (at_++ == text_.size())
			fail("no end of a string");
		return out;
	}
	char escape()
	{
		static constexpr std::string_view names = "\"\\/bfnrt", bytes = "\"\\/\b\f\n\r\t";
		auto index = ++at_ < text_.size() ? names.find(text_[at_]) : names.npos;
		if (index == names.npos)
			fail("unknown escape");
		return bytes[index];
	}
	double number()
	{
		double result;
		auto [end, error] =
			std::from_chars(text_.data() + at_, text_.data() + text_.size(), result);
		if (error != std::errc())
			fail("not a value");
		at_ = std::size_t(end - text_.data());
		return result;
	}

	std::string_view text_;
	std::size_t at_ = 0;
	int depth_ = 0;
};

} // namespace

Json Json::parse(std::string_view text)
{
	return Parser(text).document();
}

} // namespace toolbox
