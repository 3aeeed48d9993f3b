#include "system.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <numeric>
#include <sstream>

namespace toolbox
{

ThreadPool::ThreadPool(unsigned threads)
{
	std::generate_n(std::back_inserter(threads_), std::max(1u, threads),
			[this] { return std::thread(&ThreadPool::work, this); });
}

ThreadPool::~ThreadPool()
{
	{
		std::lock_guard<std::mutex> guard(lock_);
		closing_ = true;
	}
	more_.notify_all();
	for (auto &thread : threads_)
		thread.join();
}

void ThreadPool::post(std::function<void()> job)
{
	{
		std::lock_guard<std::mutex> guard(lock_);
		jobs_.push_back(std::move(job));
	}
	more_.notify_one();
}

void ThreadPool::work()
{
	for (;;) {
		std::unique_lock<std::mutex> guard(lock_);
		more_.wait(guard, [this] { return closing_ || !jobs_.empty(); });
		if (jobs_.empty())
			return;
		auto job = std::move(jobs_.front());
		jobs_.pop_front();
		guard.unlock();
		job();
	}
}

std::map<std::string, int> count_in_parallel(const std::vector<std::string> &texts,
					     unsigned threads)
{
	ThreadPool pool(threads);
	std::vector<std::future<std::map<std::string, int>>> parts;
	for (const auto &text : texts)
		parts.push_back(pool.submit([&text] {
			std::map<std::string, int> counts;
			std::istringstream in(text);
			for (std::string word; in >> word;)
				counts[word]++;
			return counts;
		}));
	std::map<std::string, int> all;
	for (auto &part : parts)
		for (const auto &[word, count] : part.get())
			all[word] += count;
	return all;
}

long sum_of_primes(int limit, unsigned threads)
{
	std::atomic<int> next{ 2 };
	auto is_prime = [](int n) {
		for (int d = 2; d <= n / d; d++)
			if (n % d == 0)
				return false;
		return true;
	};
	std::vector<std::future<long>> sums;
	for (unsigned i = 0; i < threads; i++)
		sums.push_back(std::async(std::launch::async, [&] {
			long sum = 0;
			for (int n = next++; n <= limit; n = next++)
				sum += is_prime(n) ? n : 0;
			return sum;
		}));
	return std::accumulate(sums.begin(), sums.end(), 0L,
			       [](long sum, auto &part) { return sum + part.get(); });
}

} // namespace toolbox
