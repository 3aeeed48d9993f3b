#include "text.h"
#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace toolbox
{

// Two rows of the dynamic program are enough for the distance alone.
std::size_t edit_distance(std::string_view a, std::string_view b)
{
	std::vector<std::size_t> above(b.size() + 1), row(b.size() + 1);
	for (std::size_t j = 0; j <= b.size(); j++)
		above[j] = j;
	for (std::size_t i = 1; i <= a.size(); i++) {
		row[0] = i;
		for (std::size_t j = 1; j <= b.size(); j++) {
			std::array<std::size_t, 3> choices{ above[j] + 1, row[j - 1] + 1,
							    above[j - 1] + (a[i - 1] != b[j - 1]) };
			row[j] = *std::min_element(choices.begin(), choices.end());
		}
		std::swap(above, row);
	}
	return above.back();
}

namespace
{

// Pairs of neighbouring letters: cheap to compare, and words that share none are never similar.
std::set<std::pair<char, char>> bigrams(std::string_view word)
{
	std::set<std::pair<char, char>> pairs;
	for (std::size_t i = 1; i < word.size(); i++)
		pairs.emplace(word[i - 1], word[i]);
	return pairs;
}

bool share_bigram(const std::set<std::pair<char, char>> &a,
		  const std::set<std::pair<char, char>> &b)
{
	return std::any_of(a.begin(), a.end(),
			   [&](const auto &pair) { return b.count(pair) != 0; });
}

} // namespace

std::optional<std::string> suggest(std::string_view word,
				   const std::vector<std::string> &candidates)
{
	std::multimap<std::size_t, const std::string *> ranked;
	auto wanted = bigrams(word);
	for (const auto &candidate : candidates) {
		if (word.size() > 2 && !share_bigram(wanted, bigrams(candidate)))
			continue;
		ranked.emplace(edit_distance(word, candidate), &candidate);
	}
	if (ranked.empty() || ranked.begin()->first > std::max<std::size_t>(1, word.size() / 3))
		return std::nullopt;
	return *ranked.begin()->second;
}

} // namespace toolbox
