#include "numbers.h"
#include <algorithm>
#include <iterator>
#include <numeric>
#include <ostream>
#include <stdexcept>

namespace toolbox
{

void IntervalSet::add(std::int64_t from, std::int64_t to)
{
	if (from > to)
		throw std::invalid_argument("interval: its end is before its beginning");
	if (from == to)
		return;
	// Everything that touches [from, to) is merged into it.
	auto first = intervals_.upper_bound(from);
	if (first != intervals_.begin() && std::prev(first)->second >= from)
		--first;
	auto last = first;
	for (; last != intervals_.end() && last->first <= to; ++last) {
		from = std::min(from, last->first);
		to = std::max(to, last->second);
	}
	intervals_.emplace_hint(intervals_.erase(first, last), from, to);
}

void IntervalSet::remove(std::int64_t from, std::int64_t to)
{
	auto it = intervals_.upper_bound(from);
	if (it != intervals_.begin() && std::prev(it)->second > from)
		--it;
	while (it != intervals_.end() && it->first < to) {
		auto node = intervals_.extract(it++);
		if (node.key() < from)
			intervals_.emplace(node.key(), from);
		if (node.mapped() > to)
			intervals_.emplace(to, node.mapped());
	}
}

bool IntervalSet::contains(std::int64_t value) const
{
	auto it = intervals_.upper_bound(value);
	return it != intervals_.begin() && std::prev(it)->second > value;
}

std::int64_t IntervalSet::size() const
{
	return std::accumulate(intervals_.begin(), intervals_.end(), std::int64_t(0),
			       [](auto sum, const auto &i) { return sum + i.second - i.first; });
}

std::vector<std::pair<std::int64_t, std::int64_t>> IntervalSet::gaps() const
{
	std::vector<std::pair<std::int64_t, std::int64_t>> out;
	if (intervals_.size() > 1)
		std::transform(intervals_.begin(), std::prev(intervals_.end()),
			       std::next(intervals_.begin()), std::back_inserter(out),
			       [](const auto &a, const auto &b) {
				       return std::make_pair(a.second, b.first);
			       });
	return out;
}

std::ostream &operator<<(std::ostream &out, const IntervalSet &set)
{
	for (const auto &[from, to] : set.intervals_)
		out << '[' << from << ',' << to << ')';
	return out;
}

} // namespace toolbox
