#include "text.h"
#include <algorithm>
#include <cctype>
#include <istream>
#include <iterator>
#include <locale>
#include <numeric>
#include <tuple>

namespace toolbox
{

void WordCount::add(std::istream &in)
{
	std::for_each(std::istream_iterator<std::string>(in), {}, [this](std::string word) {
		word.erase(std::remove_if(
				   word.begin(), word.end(),
				   [](char c) { return !std::isalpha(c, std::locale::classic()); }),
			   word.end());
		if (!word.empty())
			++counts_[lower(std::move(word))];
	});
}

std::size_t WordCount::total() const
{
	return std::accumulate(
		counts_.begin(), counts_.end(), std::size_t(0),
		[](std::size_t sum, const auto &entry) { return sum + entry.second; });
}

std::vector<std::pair<std::string, std::size_t>> WordCount::most_common(std::size_t n) const
{
	std::vector<std::pair<std::string, std::size_t>> sorted(std::min(n, counts_.size()));
	std::partial_sort_copy(counts_.begin(), counts_.end(), sorted.begin(), sorted.end(),
			       [](const auto &a, const auto &b) {
				       // Most frequent first, then by the alphabet.
				       return std::tie(b.second, a.first) <
					      std::tie(a.second, b.first);
			       });
	return sorted;
}

std::multimap<std::size_t, std::string> WordCount::by_length() const
{
	std::multimap<std::size_t, std::string> lengths;
	std::transform(
		counts_.begin(), counts_.end(), std::inserter(lengths, lengths.end()),
		[](const auto &entry) { return std::make_pair(entry.first.size(), entry.first); });
	return lengths;
}

} // namespace toolbox
