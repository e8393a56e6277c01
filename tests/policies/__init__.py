"""Tests of the admission policies, against a real API server with the chart installed."""
