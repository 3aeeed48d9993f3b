#include "structures.h"
#include <algorithm>
#include <iterator>
#include <limits>
#include <ostream>
#include <queue>
#include <set>
#include <stdexcept>

namespace toolbox
{

void Graph::connect(const std::string &from, const std::string &to, double length)
{
	if (length < 0)
		throw std::invalid_argument("graph: a length is negative");
	edges_[from].insert_or_assign(to, length);
	edges_.try_emplace(to);
}

std::vector<std::string> Graph::shortest(const std::string &from, const std::string &to) const
{
	using Entry = std::pair<double, std::string>;
	std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
	std::unordered_map<std::string, double> distance;
	std::unordered_map<std::string, std::string> previous;
	if (!edges_.count(from) || !edges_.count(to))
		return {};
	distance[from] = 0;
	queue.emplace(0, from);
	while (!queue.empty()) {
		auto [so_far, node] = queue.top();
		queue.pop();
		if (node == to)
			break;
		if (so_far > distance[node])
			continue;
		for (const auto &[next, length] : edges_.at(node)) {
			auto [it, fresh] =
				distance.try_emplace(next, std::numeric_limits<double>::infinity());
			if (so_far + length < it->second) {
				it->second = so_far + length;
				previous[next] = node;
				queue.emplace(it->second, next);
			}
		}
	}
	std::vector<std::string> way{ to };
	while (way.back() != from) {
		auto it = previous.find(way.back());
		if (it == previous.end())
			return {};
		way.push_back(it->second);
	}
	std::reverse(way.begin(), way.end());
	return way;
}

std::optional<std::vector<std::string>> Graph::topological() const
{
	std::map<std::string, int> incoming;
	for (const auto &[node, targets] : edges_) {
		incoming.try_emplace(node, 0);
		for (const auto &target : targets)
			incoming[target.first]++;
	}
	std::set<std::string> ready;
	for (const auto &[node, count] : incoming)
		if (count == 0)
			ready.insert(node);
	std::vector<std::string> order;
	while (!ready.empty()) {
		auto node = ready.extract(ready.begin()).value();
		for (const auto &target : edges_.at(node))
			if (--incoming[target.first] == 0)
				ready.insert(target.first);
		order.push_back(std::move(node));
	}
	return order.size() == edges_.size() ? std::make_optional(order) : std::nullopt;
}

std::vector<std::unordered_set<std::string>> Graph::components() const
{
	std::unordered_multimap<std::string, std::string> neighbours;
	for (const auto &[node, targets] : edges_)
		for (const auto &target : targets) {
			neighbours.emplace(node, target.first);
			neighbours.emplace(target.first, node);
		}
	std::vector<std::unordered_set<std::string>> found;
	std::unordered_set<std::string> seen;
	for (const auto &entry : edges_) {
		if (!seen.insert(entry.first).second)
			continue;
		std::unordered_set<std::string> component;
		std::queue<std::string> queue({ entry.first });
		for (; !queue.empty(); queue.pop()) {
			auto [first, last] = neighbours.equal_range(queue.front());
			for (auto it = first; it != last; ++it)
				if (seen.insert(it->second).second)
					queue.push(it->second);
			component.insert(queue.front());
		}
		found.push_back(std::move(component));
	}
	return found;
}

void Graph::dot(std::ostream &out) const
{
	out << "digraph {\n";
	for (const auto &[node, targets] : edges_)
		for (const auto &[target, length] : targets)
			out << "\t\"" << node << "\" -> \"" << target << "\" [label=" << length
			    << "];\n";
	out << "}\n";
}

} // namespace toolbox
