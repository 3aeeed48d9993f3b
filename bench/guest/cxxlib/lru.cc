#include "structures.h"
#include <stdexcept>

namespace toolbox
{

LruCache::LruCache(std::size_t capacity, Loader loader)
    : capacity_(capacity), loader_(std::move(loader))
{
	if (!capacity || !loader_)
		throw std::invalid_argument("cache: needs room and a loader");
	index_.reserve(capacity);
}

std::string LruCache::get(const std::string &key)
{
	{
		std::unique_lock<std::shared_mutex> guard(lock_);
		auto it = index_.find(key);
		if (it != index_.end()) {
			hits_++;
			entries_.splice(entries_.begin(), entries_, it->second);
			return it->second->second;
		}
		misses_++;
	}
	// The lock is free while the value is loaded; another thread may load the same one.
	auto value = loader_(key);
	std::unique_lock<std::shared_mutex> guard(lock_);
	if (auto [it, fresh] = index_.try_emplace(key); fresh) {
		entries_.emplace_front(key, value);
		it->second = entries_.begin();
	}
	while (entries_.size() > capacity_) {
		index_.erase(entries_.back().first);
		entries_.pop_back();
	}
	return value;
}

bool LruCache::has(const std::string &key) const
{
	std::shared_lock<std::shared_mutex> guard(lock_);
	return index_.count(key) != 0;
}

std::pair<std::size_t, std::size_t> LruCache::hits_and_misses() const
{
	std::shared_lock<std::shared_mutex> guard(lock_);
	return { hits_, misses_ };
}

} // namespace toolbox
