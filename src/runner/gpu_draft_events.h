#pragma once
// When a GPU worked on a step's drafts.
//
// Thread safety: written by the rank's worker until the step is launched, then read by one thread.
#include <memory>
#include <utility>
#include <vector>

#include "core/device_library.h"
#include "runner/draft_times.h"

namespace quire {

struct GpuDraftEvents {
  struct Interval {
    std::unique_ptr<DeviceEvent> begin;
    std::unique_ptr<DeviceEvent> end;

    // Once the GPU is done; 0 where there was no such work.
    double seconds() const { return begin == nullptr ? 0.0 : end->seconds_since(*begin); }
  };

  std::vector<Interval> reading;
  Interval drafting;  // its end: the drafts are in the host's memory
  // Part of the time went to what later drafts of their kind find ready.
  bool is_first_of_kind = false;

  // Queues `work` and notes when it begins and ends.
  template <typename Work>
  static Interval timed(DeviceStream& gpu, const Work& work) {
    Interval interval;
    interval.begin = gpu.record(EventWait::kSleep);
    work();
    interval.end = gpu.record(EventWait::kSpin);
    return interval;
  }

  // What counts of them for later steps, once the GPU is done.
  DraftTimes times() const {
    DraftTimes times;
    for (const Interval& interval : reading) times.reading_s += interval.seconds();
    if (!is_first_of_kind) times.drafting_s = drafting.seconds();
    return times;
  }
};

}  // namespace quire
