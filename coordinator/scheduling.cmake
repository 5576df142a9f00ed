# deltafill_planning: planner and scheduler, pure, without gRPC. deltafill_scheduling: the rest.
