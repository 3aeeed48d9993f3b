// Text: splitting, wrapping, distances, words, globs and templates.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace toolbox
{

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string> &parts, std::string_view separator);
std::string_view trim(std::string_view text);
std::string lower(std::string text);
std::string replace_all(std::string text, std::string_view from, std::string_view to);
// Lines of at most `width` characters, broken at blanks.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

// The Levenshtein distance, and the candidate nearest to a word, if one is near enough.
std::size_t edit_distance(std::string_view a, std::string_view b);
std::optional<std::string> suggest(std::string_view word,
				   const std::vector<std::string> &candidates);

class WordCount
{
      public:
	void add(std::istream &in);
	std::size_t total() const;
	std::vector<std::pair<std::string, std::size_t>> most_common(std::size_t n) const;
	std::multimap<std::size_t, std::string> by_length() const;

      private:
	std::unordered_map<std::string, std::size_t> counts_;
};

// Shell patterns: * ? [a-z] [!a-z] and {one,two}.
bool glob_match(std::string_view pattern, std::string_view text);

// Replaces {{name}}, {{name|upper}} and {{name:default}}.
std::string render(const std::string &pattern, const std::map<std::string, std::string> &values);

} // namespace toolbox
