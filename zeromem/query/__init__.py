"""From a question to its evidence: profile, route, two views, fusion, closure, calibration."""
