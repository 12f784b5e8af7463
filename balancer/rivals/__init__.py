"""Policies that Headway is measured against, each as it really behaves; never chosen by the planner."""
