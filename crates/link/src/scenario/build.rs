//! From a scenario to what runs: the general model, or two pipes.

use std::path::{Path, PathBuf};

use bentpipe_units::Decibel;

use super::{Files, Orbit, Scenario, ScenarioError, Standard, change, terminal};
use crate::channel::ChannelModel;
use crate::ids::Way;
use crate::model::Model;
use crate::pipe::{LinkConfig, PipeConfig};
use crate::propagation::{Budgets, Propagation};

impl Scenario {
    /// The files that the scenario names, to be read relative to its own.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.attenuation.files().chain(self.orbit.file());
        let files = files.chain(self.errors.file());
        let standards = [&self.forward_link, &self.return_link];
        let files = files.chain(standards.into_iter().filter_map(Standard::file));
        files.map(Path::to_path_buf).collect()
    }

    /// The scenario as the model of a [`crate::Link`].
    ///
    /// # Errors
    /// If values contradict each other or a file is missing or malformed; the error has the key.
    pub fn build(&self, files: &Files) -> Result<Model, ScenarioError> {
        let propagation = self.propagation(files)?;
        let terminals = terminal::names(&self.terminals)?;
        self.network.check(terminals.len())?;
        Ok(Model {
            seed: self.general.seed,
            terminals,
            forward_link: self.channel(Way::Forward, &propagation, files)?,
            return_link: self.channel(Way::Return, &propagation, files)?,
            propagation,
        })
    }

    fn propagation(&self, files: &Files) -> Result<Propagation, ScenarioError> {
        let seed = self.general.seed.stream("orbit");
        let path = |station| self.orbit.path(station, files, seed);
        // Working out an orbit takes a while, and most terminals have the same.
        let mut paths = vec![path(None)?; self.terminals.len().max(1)];
        for (own, terminal) in paths.iter_mut().zip(&self.terminals) {
            if terminal.station.is_some() {
                *own = path(terminal.station)?;
            }
        }
        let budgets = self.budgets(paths.len(), files)?;
        Ok(Propagation {
            paths,
            allow_reordering: self.orbit.allow_reordering(),
            budgets,
        })
    }

    fn budgets(&self, terminals: usize, files: &Files) -> Result<Option<Budgets>, ScenarioError> {
        let Some(budget) = &self.link_budget else {
            self.attenuation.without_budget()?;
            return Ok(None);
        };
        let of = |way| budget.of(way, &self.attenuation, files);
        let extra = self
            .terminals
            .iter()
            .map(|terminal| terminal.extra_attenuation);
        let mut extra_attenuation: Vec<_> = extra.collect();
        extra_attenuation.resize(terminals, Decibel::ZERO);
        Ok(Some(Budgets {
            forward_link: of(Way::Forward)?,
            return_link: of(Way::Return)?,
            extra_attenuation,
        }))
    }

    fn channel(
        &self,
        way: Way,
        propagation: &Propagation,
        files: &Files,
    ) -> Result<ChannelModel, ScenarioError> {
        let (table, standard) = (way.name(), self.standard(way));
        let background = &self.background;
        let carriage = standard.carriage(
            table,
            &self.acm,
            &self.terminals,
            background,
            propagation,
            files,
        )?;
        let rate = carriage.nominal_rate();
        let delay = propagation.typical_one_way_delay();
        Ok(ChannelModel {
            classes: self.queues.classes(way, rate, delay)?,
            encapsulation: standard.encapsulation(table)?,
            errors: self.errors.model(way, carriage.is_framed(), files)?,
            background: match standard {
                // There it asks for capacity as everybody else.
                Standard::DvbRcs2(_) => None,
                _ => background.model(way)?,
            },
            allow_reordering: propagation.allow_reordering,
            schedule: change::schedule(&self.changes, way, standard)?,
            carriage,
        })
    }

    const fn standard(&self, way: Way) -> &Standard {
        match way {
            Way::Forward => &self.forward_link,
            Way::Return => &self.return_link,
        }
    }

    /// The scenario as the configuration of a [`crate::Duplex`]: one terminal, constant bit rates and delay, one queue.
    ///
    /// # Errors
    /// If values contradict each other, or the scenario needs the general model; the message names table and key.
    pub fn link_config(&self) -> Result<LinkConfig, ScenarioError> {
        Ok(LinkConfig {
            forward_link: self.pipe(Way::Forward)?,
            return_link: self.pipe(Way::Return)?,
        })
    }

    fn pipe(&self, way: Way) -> Result<PipeConfig, ScenarioError> {
        let one_way_delay = match &self.orbit {
            Orbit::Constant {
                one_way_delay,
                jitter,
            } if jitter.get().is_zero() => one_way_delay,
            _ => {
                let problem = "has a delay that varies, which only the general link has";
                return Err(ScenarioError::new("orbit.model", problem));
            }
        };
        let rate = self.standard(way).constant_rate(way.name())?;
        let queue = self.queues.only()?;
        Ok(PipeConfig {
            rate,
            one_way_delay: one_way_delay.get(),
            queue: queue.for_link("queue", rate, one_way_delay.get())?,
            loss: self.errors.of_packets(way)?,
            outages: Vec::new(),
            schedule: change::schedule(&self.changes, way, self.standard(way))?,
            policer: None,
        })
    }
}
