"""The dream as a server: many sessions over one dream, in the protocol of OpenEnv."""
