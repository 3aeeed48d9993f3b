// Structures: graphs, tries, caches, events, timers.
#pragma once
#include <any>
#include <chrono>
#include <functional>
#include <iosfwd>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace toolbox
{

class Graph
{
      public:
	void connect(const std::string &from, const std::string &to, double length = 1);
	// The nodes on the shortest way; empty when there is none.
	std::vector<std::string> shortest(const std::string &from, const std::string &to) const;
	std::optional<std::vector<std::string>> topological() const; // none when there is a cycle
	std::vector<std::unordered_set<std::string>> components() const; // taken as undirected
	void dot(std::ostream &out) const;

      private:
	std::map<std::string, std::map<std::string, double>> edges_;
};

class Trie
{
      public:
	Trie();
	~Trie();
	bool insert(std::string_view word); // false when it is there
	bool contains(std::string_view word) const;
	bool erase(std::string_view word);
	std::vector<std::string> complete(std::string_view prefix, std::size_t limit) const;

      private:
	struct Node;
	const Node *walk(std::string_view prefix) const;
	std::unique_ptr<Node> root_;
};

// The most recently used entries, safe among threads.
class LruCache
{
      public:
	using Loader = std::function<std::string(const std::string &)>;
	LruCache(std::size_t capacity, Loader loader);
	std::string get(const std::string &key);
	bool has(const std::string &key) const;
	std::pair<std::size_t, std::size_t> hits_and_misses() const;

      private:
	using Entry = std::pair<std::string, std::string>;
	mutable std::shared_mutex lock_;
	std::size_t capacity_, hits_ = 0, misses_ = 0;
	Loader loader_;
	std::list<Entry> entries_; // the latest first
	std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

// Handlers by the type of event.
class EventBus
{
      public:
	template <typename E> int subscribe(std::function<void(const E &)> handler)
	{
		return add(typeid(E),
			   [handler](const std::any &e) { handler(std::any_cast<const E &>(e)); });
	}
	template <typename E> std::size_t publish(E event)
	{
		return deliver(std::any(std::move(event)));
	}
	bool unsubscribe(int id);
	std::vector<std::string> failures() const
	{
		return failures_;
	}

      private:
	using Handler = std::function<void(const std::any &)>;
	int add(std::type_index type, Handler handler);
	std::size_t deliver(const std::any &event);
	int last_id_ = 0;
	std::unordered_multimap<std::type_index, std::pair<int, Handler>> handlers_;
	std::vector<std::string> failures_;
};

// Runs callbacks in the order of their times, on a clock that the caller moves.
class Scheduler
{
      public:
	using Duration = std::chrono::milliseconds;
	int after(Duration delay, std::function<void()> callback);
	int every(Duration period, std::function<void()> callback);
	bool cancel(int id);
	std::size_t advance(Duration by); // how many were called
	Duration now() const
	{
		return now_;
	}

      private:
	struct Timer {
		int id;
		Duration period;
		std::function<void()> callback;
	};
	Duration now_{ 0 };
	int last_id_ = 0;
	std::multimap<Duration, Timer> timers_;
};

} // namespace toolbox
