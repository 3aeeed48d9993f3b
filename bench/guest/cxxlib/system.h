// The system: thread pools, channels, folders and files.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace toolbox
{

class ThreadPool
{
      public:
	explicit ThreadPool(unsigned threads);
	~ThreadPool(); // when all that was submitted is done
	template <typename F> auto submit(F f) -> std::future<decltype(f())>
	{
		auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::move(f));
		auto result = task->get_future();
		post([task] { (*task)(); });
		return result;
	}

      private:
	void post(std::function<void()> job);
	void work();
	std::mutex lock_;
	std::condition_variable more_;
	std::deque<std::function<void()>> jobs_;
	bool closing_ = false;
	std::vector<std::thread> threads_;
};

// Words of all the texts, counted by several threads.
std::map<std::string, int> count_in_parallel(const std::vector<std::string> &texts,
					     unsigned threads);
long sum_of_primes(int limit, unsigned threads);

class Channel
{
      public:
	explicit Channel(std::size_t capacity) : capacity_(capacity)
	{
	}
	bool send(std::string message);	      // waits for room; false when it is closed
	std::optional<std::string> receive(); // waits; none when it is closed and empty
	std::optional<std::string> receive_for(std::chrono::milliseconds timeout);
	void close();

      private:
	std::optional<std::string> pop(std::unique_lock<std::mutex> &guard);
	std::mutex lock_;
	std::condition_variable room_, more_;
	std::deque<std::string> messages_;
	std::size_t capacity_;
	bool closed_ = false;
};

// A folder that is removed with the object.
class TemporaryFolder
{
      public:
	TemporaryFolder();
	~TemporaryFolder();
	TemporaryFolder(const TemporaryFolder &) = delete;
	const std::filesystem::path &path() const
	{
		return path_;
	}

      private:
	std::filesystem::path path_;
};

struct Usage {
	std::uintmax_t files = 0, folders = 0, bytes = 0;
	std::map<std::string, std::uintmax_t> by_extension;
};
Usage disk_usage(const std::filesystem::path &root);
std::vector<std::filesystem::path> newest(const std::filesystem::path &root, std::size_t n);

// Strings by key, in a log file that is replayed when it is opened.
class Store
{
      public:
	explicit Store(std::filesystem::path file);
	void put(const std::string &key, const std::string &value);
	bool remove(const std::string &key);
	std::optional<std::string> get(const std::string &key) const;
	void compact();
	std::size_t size() const
	{
		return values_.size();
	}

      private:
	void append(std::ostream &out, char kind, const std::string &key,
		    const std::string &value) const;
	std::filesystem::path file_;
	std::map<std::string, std::string> values_;
};

} // namespace toolbox
