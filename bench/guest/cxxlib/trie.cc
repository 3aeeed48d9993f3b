#include "structures.h"
#include <algorithm>
#include <stack>

namespace toolbox
{

struct Trie::Node {
	bool end = false;
	std::map<char, std::unique_ptr<Node>> next;
};

Trie::Trie() : root_(std::make_unique<Node>())
{
}
Trie::~Trie() = default;

bool Trie::insert(std::string_view word)
{
	Node *node = root_.get();
	for (char c : word) {
		auto [it, fresh] = node->next.try_emplace(c);
		if (fresh)
			it->second = std::make_unique<Node>();
		node = it->second.get();
	}
	return !std::exchange(node->end, true);
}

const Trie::Node *Trie::walk(std::string_view prefix) const
{
	const Node *node = root_.get();
	for (char c : prefix) {
		auto it = node->next.find(c);
		if (it == node->next.end())
			return nullptr;
		node = it->second.get();
	}
	return node;
}

bool Trie::contains(std::string_view word) const
{
	auto node = walk(word);
	return node && node->end;
}

bool Trie::erase(std::string_view word)
{
	if (!contains(word))
		return false;
	// Branches that lead nowhere else go too, from the leaf up.
	std::stack<std::pair<Node *, char>> way;
	Node *node = root_.get();
	for (char c : word) {
		way.emplace(node, c);
		node = node->next.at(c).get();
	}
	node->end = false;
	for (; !way.empty() && !node->end && node->next.empty(); way.pop()) {
		auto [parent, c] = way.top();
		parent->next.erase(c);
		node = parent;
	}
	return true;
}

std::vector<std::string> Trie::complete(std::string_view prefix, std::size_t limit) const
{
	std::vector<std::string> words;
	std::function<void(const Node &, std::string)> visit = [&](const Node &node,
								   std::string so_far) {
		if (words.size() == limit)
			return;
		if (node.end)
			words.push_back(so_far);
		for (const auto &[c, child] : node.next)
			visit(*child, so_far + c);
	};
	if (auto node = walk(prefix))
		visit(*node, std::string(prefix));
	return words;
}

} // namespace toolbox
