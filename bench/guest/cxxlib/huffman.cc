#include "data.h"
#include <array>
#include <bitset>
#include <functional>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

namespace toolbox
{

namespace
{

struct Node {
	std::uint64_t weight;
	int symbol; // -1: an inner node
	std::unique_ptr<Node> left, right;
};

using Counts = std::array<std::uint32_t, 256>;

// Ties are broken by order of creation, so that both sides build the same tree.
std::unique_ptr<Node> make_tree(const Counts &counts)
{
	using Entry = std::tuple<std::uint64_t, int, Node *>;
	std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
	int order = 0;
	for (int symbol = 0; symbol < 256; symbol++)
		if (counts[std::size_t(symbol)])
			queue.emplace(
				counts[std::size_t(symbol)], order++,
				new Node{ counts[std::size_t(symbol)], symbol, nullptr, nullptr });
	auto pop = [&] {
		std::unique_ptr<Node> node(std::get<Node *>(queue.top()));
		queue.pop();
		return node;
	};
	while (queue.size() > 1) {
		auto left = pop(), right = pop();
		auto weight = left->weight + right->weight;
		queue.emplace(weight, order++,
			      new Node{ weight, -1, std::move(left), std::move(right) });
	}
	return queue.empty() ? nullptr : pop();
}

void collect(const Node &node, std::vector<bool> &prefix,
	     std::unordered_map<int, std::vector<bool>> &codes)
{
	if (node.symbol >= 0) {
		codes[node.symbol] = prefix.empty() ? std::vector<bool>{ false } : prefix;
		return;
	}
	for (bool bit : { false, true }) {
		prefix.push_back(bit);
		collect(bit ? *node.right : *node.left, prefix, codes);
		prefix.pop_back();
	}
}

void put_u32(std::string &out, std::uint32_t value)
{
	for (int shift = 0; shift < 32; shift += 8)
		out += char(value >> shift & 0xff);
}

std::uint32_t get_u32(std::string_view bytes, std::size_t at)
{
	if (bytes.size() < at + 4)
		throw std::runtime_error("huffman: cut off");
	std::uint32_t value = 0;
	for (std::size_t i = 4; i-- > 0;)
		value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
	return value;
}

} // namespace

std::string huffman_encode(std::string_view bytes)
{
	Counts counts{};
	for (unsigned char c : bytes)
		counts[c]++;
	std::string out;
	for (auto count : counts)
		put_u32(out, count);
	auto tree = make_tree(counts);
	if (!tree)
		return out;
	std::unordered_map<int, std::vector<bool>> codes;
	std::vector<bool> prefix;
	collect(*tree, prefix, codes);
	std::bitset<8> byte;
	std::size_t used = 0;
	for (unsigned char c : bytes)
		for (bool bit : codes.at(c)) {
			byte[used++] = bit;
			if (used == 8) {
				out += char(byte.to_ulong());
				used = 0;
			}
		}
	if (used)
		out += char(byte.to_ulong());
	return out;
}

std::string huffman_decode(std::string_view coded)
{
	Counts counts{};
	for (std::size_t i = 0; i < counts.size(); i++)
		counts[i] = get_u32(coded, 4 * i);
	auto tree = make_tree(counts);
	std::string out;
	if (!tree)
		return out;
	const Node *node = tree.get();
	for (std::size_t at = 4 * counts.size() * 8; out.size() < tree->weight; at++) {
		if (at / 8 >= coded.size())
			throw std::runtime_error("huffman: cut off");
		bool bit = std::bitset<8>(static_cast<unsigned char>(coded[at / 8]))[at % 8];
		if (node->symbol < 0)
			node = bit ? node->right.get() : node->left.get();
		if (node->symbol >= 0) {
			out += char(node->symbol);
			node = tree.get();
		}
	}
	return out;
}

} // namespace toolbox
