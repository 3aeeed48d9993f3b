#include "structures.h"
#include <algorithm>
#include <exception>
#include <iterator>

namespace toolbox
{

int EventBus::add(std::type_index type, Handler handler)
{
	handlers_.emplace(type, std::make_pair(++last_id_, std::move(handler)));
	return last_id_;
}

bool EventBus::unsubscribe(int id)
{
	auto it = std::find_if(handlers_.begin(), handlers_.end(),
			       [id](const auto &entry) { return entry.second.first == id; });
	if (it == handlers_.end())
		return false;
	handlers_.erase(it);
	return true;
}

// Handlers may subscribe and unsubscribe, so that those of now are copied first.
std::size_t EventBus::deliver(const std::any &event)
{
	auto [first, last] = handlers_.equal_range(event.type());
	std::vector<std::pair<int, Handler>> now;
	std::transform(first, last, std::back_inserter(now),
		       [](const auto &entry) { return entry.second; });
	std::sort(now.begin(), now.end(),
		  [](const auto &a, const auto &b) { return a.first < b.first; });
	for (const auto &entry : now) {
		try {
			entry.second(event);
		} catch (const std::exception &e) {
			failures_.emplace_back(e.what());
		}
	}
	return now.size();
}

} // namespace toolbox
