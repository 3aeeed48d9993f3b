#include "structures.h"
#include <algorithm>
#include <stdexcept>

namespace toolbox
{

int Scheduler::after(Duration delay, std::function<void()> callback)
{
	timers_.emplace(now_ + delay, Timer{ ++last_id_, Duration::zero(), std::move(callback) });
	return last_id_;
}

int Scheduler::every(Duration period, std::function<void()> callback)
{
	if (period <= Duration::zero())
		throw std::invalid_argument("scheduler: no period");
	timers_.emplace(now_ + period, Timer{ ++last_id_, period, std::move(callback) });
	return last_id_;
}

bool Scheduler::cancel(int id)
{
	auto it = std::find_if(timers_.begin(), timers_.end(),
			       [id](const auto &entry) { return entry.second.id == id; });
	if (it == timers_.end())
		return false;
	timers_.erase(it);
	return true;
}

std::size_t Scheduler::advance(Duration by)
{
	auto until = now_ + by;
	std::size_t called = 0;
	while (!timers_.empty() && timers_.begin()->first <= until) {
		auto node = timers_.extract(timers_.begin());
		auto callback = node.mapped().callback;
		now_ = node.key();
		if (node.mapped().period > Duration::zero()) {
			node.key() += node.mapped().period;
			timers_.insert(std::move(node));
		}
		callback();
		called++;
	}
	now_ = until;
	return called;
}

} // namespace toolbox
